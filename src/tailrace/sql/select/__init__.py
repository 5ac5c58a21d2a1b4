"""SELECT over topics, `system.*` and the changes of tables, joined with tables: DuckDB over Arrow."""
