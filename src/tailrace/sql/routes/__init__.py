"""Routes: what may stand in them, what it becomes in Spark and DuckDB, and what it would do."""
