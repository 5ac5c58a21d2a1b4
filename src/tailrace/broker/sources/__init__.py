"""Sources: databases whose tables are captured into the log."""
