"""Dates, times and intervals."""

from tailrace.sql.duckdb.templates import RowFunction, Template, expanded

TIMES: dict[str, Template] = expanded({})

TIME_ROWS: dict[str, RowFunction] = {}
