"""Keys of values whose equality and order DuckDB does not see: numerics that are held as text, JSON, and enums."""

from tailrace.sql.analysis.types import SqlType, is_enum
from tailrace.sql.duckdb.templates import is_loose


def has_key(sql_type: SqlType) -> bool:
    """Return whether equal values of a type may differ in DuckDB, so that they are compared and grouped by a key."""
    if sql_type.is_array:
        return has_key(sql_type.element)
    return is_loose(sql_type) or sql_type.name in ("json", "jsonb", "bpchar") or is_enum(sql_type.name)


def key_of(text: str, sql_type: SqlType) -> str:
    """Return the key of a value, or the value itself if DuckDB compares it as PostgreSQL does."""
    if not has_key(sql_type):
        return text
    if sql_type.is_array:
        return f"list_transform({text}, lambda keyed: {key_of('keyed', sql_type.element)})"
    if is_enum(sql_type.name):
        labels = ", ".join("'" + label.replace("'", "''") + "'" for label in sql_type.labels)
        return f"list_position([{labels}], {text})"
    if sql_type.name == "bpchar":
        # The spaces at the end of char(n) do not count.
        return f"rtrim({text}, ' ')"
    return f"numeric_sort_key({text})" if is_loose(sql_type) else f"jsonb_sort_key({text})"
