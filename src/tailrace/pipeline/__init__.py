"""PySpark: topics as a source and a sink, and the router that publishes table changes to topics."""
