"""Routes: which expressions they may use, how these are compiled for Spark and DuckDB, and dry runs."""
