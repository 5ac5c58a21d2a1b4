"""Writes analyzed expressions in Spark's SQL, with PostgreSQL's meaning."""
