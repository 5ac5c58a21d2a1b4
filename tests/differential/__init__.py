"""SQL judged by a real PostgreSQL: the same cases are asked of both, and what differs is listed.

Cases are in `cases/`, others come from `generated.py`. `python -m tests.differential.report` prints the verdicts.
"""
