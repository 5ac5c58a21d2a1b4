"""The SQL dialect, statements, embedded tables, SELECT over topics."""
