"""Arrays."""

from tailrace.sql.duckdb.templates import RowFunction, Template, expanded

ARRAYS: dict[str, Template] = expanded({})

ARRAY_ROWS: dict[str, RowFunction] = {
    "generate_series(int4, int4)": RowFunction("list_transform(generate_series({0}, {1}), lambda item: CAST(item AS INTEGER))"),
    "generate_series(int8, int8)": RowFunction("generate_series({0}, {1})"),
    "unnest(anyarray)": RowFunction("{0}"),
}
