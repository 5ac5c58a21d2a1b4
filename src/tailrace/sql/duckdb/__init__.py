"""Analyzed queries in DuckDB's SQL, with PostgreSQL's meaning."""
