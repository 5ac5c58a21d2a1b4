"""SELECT over topics, `system.*` and the changes of tables, joined with tables: runs in DuckDB over Arrow."""
