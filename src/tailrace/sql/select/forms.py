"""DuckDB's types as ours, and the forms in which their values arrive in Arrow. Knows DuckDB only by the shape of its types."""

from typing import Any

from tailrace.model.table import ColumnKind, ColumnType

AS_IT_IS, JSON, LIST, NESTED, TEXT, TIMESTAMP, UUID_TEXT, WHOLE = (
    "as_it_is",
    "json",
    "list",
    "nested",
    "text",
    "timestamp",
    "uuid",
    "whole",
)
"""That of a list goes on with the form of what is in it."""

_KINDS: dict[str, ColumnKind] = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "utinyint": "smallint",
    "smallint": "smallint",
    "usmallint": "integer",
    "integer": "integer",
    "uinteger": "bigint",
    "bigint": "bigint",
    "ubigint": "bigint",
    "hugeint": "bigint",
    "uhugeint": "bigint",
    "float": "double",
    "double": "double",
    "blob": "bytes",
    "date": "date",
    "uuid": "uuid",
    "json": "json",
    "struct": "json",
    "map": "json",
}


def column_type(kind: Any) -> ColumnType:
    """Of one of DuckDB's types."""
    if str(kind) == "JSON":
        return ColumnType("json")
    name = kind.id
    if name == "decimal":
        digits = dict(kind.children)
        return ColumnType("decimal", digits["precision"], digits["scale"])
    if name in ("list", "array"):
        return ColumnType("list", element=column_type(dict(kind.children)["child"]))
    if name.startswith("timestamp"):
        return ColumnType("timestamp")
    return ColumnType(_KINDS.get(name, "text"))


def form_of(kind: Any) -> str:
    """Of the values of one of DuckDB's types."""
    name = kind.id
    if str(kind) == "JSON":
        return JSON
    if name in ("list", "array"):
        return f"{LIST} {form_of(dict(kind.children)['child'])}"
    if name.startswith("timestamp"):
        return TIMESTAMP
    return _FORMS.get(name, AS_IT_IS)


_FORMS = {
    "hugeint": WHOLE,
    "uhugeint": WHOLE,
    "uuid": UUID_TEXT,
    "struct": NESTED,
    "map": NESTED,
    "interval": TEXT,
    "time": TEXT,
    "time with time zone": TEXT,
    "bit": TEXT,
}
