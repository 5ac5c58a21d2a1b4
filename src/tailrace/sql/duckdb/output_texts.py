"""The text of values of every type, as PostgreSQL's output functions print it. Casts, `||`, concat and format use it."""

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.types import SqlType, is_enum
from tailrace.sql.duckdb.templates import decimal_text

_OUTPUT = {
    "int2": "CAST({0} AS VARCHAR)",
    "int4": "CAST({0} AS VARCHAR)",
    "int8": "CAST({0} AS VARCHAR)",
    "float4": "float4_text({0})",
    "float8": "float8_text({0})",
    "bool": "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END",
    "text": "{0}",
    "varchar": "{0}",
    "bpchar": "{0}",
    "name": "{0}",
    "unknown": "{0}",
    "regtype": "{0}",
    "bytea": "bytea_text({0})",
    "uuid": "CAST({0} AS VARCHAR)",
    "date": "date_text({0})",
    "time": "CAST({0} AS VARCHAR)",
    "timestamp": "timestamp_text({0})",
    "timestamptz": "timestamptz_text({0})",
    "interval": "interval_text({0})",
    "json": "{0}",
    "jsonb": "jsonb_text({0})",
}
_NEVER_QUOTED = frozenset(("int2", "int4", "int8", "numeric", "float4", "float8", "bool", "uuid", "date"))
"""Elements that an array shows without quotes."""


def output_text(text: str, sql_type: SqlType) -> str:
    """Return the expression of a value's text as it is printed: that of a boolean is `t`."""
    if sql_type.name == "numeric":
        return decimal_text(text, sql_type)
    if sql_type.is_array:
        item = output_text("item", sql_type.element)
        shown = f"coalesce({item}, 'NULL')" if sql_type.element.name in _NEVER_QUOTED else f"array_item_text({item})"
        return f"array_text(list_transform({text}, lambda item: {shown}))"
    if is_enum(sql_type.name):
        return text
    template = _OUTPUT.get(sql_type.name)
    if template is None:
        raise UnsupportedError(f"the text of a value of the type {sql_type} is not supported")
    return template.format(text)


def cast_text(text: str, sql_type: SqlType) -> str:
    """Return the expression of a value that is cast to text: that of a boolean is `true`, and char(n) loses its spaces."""
    if sql_type.name == "bool":
        return f"CAST({text} AS VARCHAR)"
    if sql_type.name == "bpchar":
        return f"rtrim({text}, ' ')"
    return output_text(text, sql_type)
