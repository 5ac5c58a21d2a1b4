"""SQL: the dialect, its statements, embedded tables, and SELECT over topics."""
