"""Functions of PostgreSQL in Python, on single values. They are called by the evaluation of expressions and by DuckDB."""
