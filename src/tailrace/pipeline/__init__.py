"""PySpark: source, sink, router, change sources. Knows `client` and `wire` only."""
