"""JSON."""

from tailrace.sql.duckdb.templates import RowFunction, Template, expanded

JSON: dict[str, Template] = expanded({})

JSON_ROWS: dict[str, RowFunction] = {}
