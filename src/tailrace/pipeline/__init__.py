"""PySpark: topics as a source and a sink for everybody, and the router that fills topics from table changes."""
