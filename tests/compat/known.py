"""What is known not to work today, with the reason that the grid shows. A fix makes the test fail until its line is gone."""

KNOWN_FAILURES: dict[tuple[str, str], str] = {}
"""By client and scenario."""
