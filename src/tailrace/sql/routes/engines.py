"""How each engine writes columns, constants and types.

Spark replaces `${name}` by its own settings anywhere in a text, also within strings, so no dollar sign may reach it.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple

from tailrace.model.errors import invariant
from tailrace.model.table import ColumnKind, ColumnType, Table
from tailrace.sql.routes.expression import TEXT, ColumnValue, Value
from tailrace.sql.routes.operators import Operator
from tailrace.sql.routes.types import digits_of

_SPARK_TYPES: dict[ColumnKind, str] = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "text": "STRING",
    "bytes": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "uuid": "STRING",
    "json": "STRING",
}
_DUCKDB_TYPES = _SPARK_TYPES | {"integer": "INTEGER", "text": "VARCHAR", "bytes": "BLOB", "uuid": "VARCHAR", "json": "VARCHAR"}

_JSON_TEXTS: dict[ColumnKind, str] = {
    "date": "concat('\"', CAST({0} AS STRING), '\"')",
    "decimal": "concat('\"', CAST({0} AS STRING), '\"')",
    "timestamp": "concat('\"', date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS\\'Z\\''), '\"')",
    "text": "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)",
    "uuid": "concat('\"', {0}, '\"')",
}
"""What is not here is in JSON as it is in text."""


class Engine(NamedTuple):
    form: Callable[[Operator], str]
    """How it writes an operator."""
    types: dict[ColumnKind, str]
    list_of: str
    row_of: str
    field: str
    identifier: Callable[[str], str]
    string: Callable[[str], str]
    zone: str
    """What stands behind a timestamp in UTC."""

    def type_name(self, type_: ColumnType) -> str:
        if type_.kind == "decimal":
            return f"DECIMAL({type_.precision}, {type_.scale or 0})"
        if type_.kind == "list":
            invariant(type_.element is not None, "a list without the type of its elements")
            return self.list_of.format(self.type_name(type_.element or type_))
        return self.types[type_.kind]

    def row_type(self, table: Table) -> str:
        """The type of a row. Decimals that the engines don't have are text there; no route can use them."""
        fields = []
        for column in table.columns:
            is_known = column.type.kind != "decimal" or digits_of(column.type) is not None
            fields.append(self.field.format(self.identifier(column.name), self.type_name(column.type if is_known else TEXT)))
        return self.row_of.format(", ".join(fields))

    def column(self, column: ColumnValue) -> str:
        """`old` and `new` are structs with a field for each column; of a row that is not there they are null."""
        name = self.identifier(column.name)
        if column.image == "row":
            return f"CASE WHEN new IS NULL THEN old.{name} ELSE new.{name} END"
        return f"{column.image}.{name}"

    def constant(self, value: Value, type_: ColumnType) -> str:
        match value:
            case None:
                return f"CAST(NULL AS {self.type_name(type_)})"
            case bool():
                return "TRUE" if value else "FALSE"
            case int():
                return f"CAST({value} AS {self.type_name(type_)})" if type_.kind != "bigint" else str(value)
            case float():
                return f"CAST('{value!r}' AS DOUBLE)"
            case Decimal():
                return f"CAST('{value:f}' AS {self.type_name(type_)})"
            case datetime():
                at = value.astimezone(UTC).replace(tzinfo=None)
                return f"TIMESTAMP '{at.isoformat(' ', 'microseconds')}{self.zone}'"
            case date():
                return f"DATE '{value.isoformat()}'"
        return self.string(value)


def key_text(value: str, type_: ColumnType) -> str:
    """For Spark: a value as JSON."""
    return f"coalesce({_JSON_TEXTS.get(type_.kind, 'CAST({0} AS STRING)').format(value)}, 'null')"


def _spark_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def _spark_identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _duckdb_string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


SPARK = Engine(
    form=lambda operator: operator.spark,
    types=_SPARK_TYPES,
    list_of="ARRAY<{}>",
    row_of="STRUCT<{}>",
    field="{}: {}",
    identifier=_spark_identifier,
    string=_spark_string,
    zone="Z",
)
DUCKDB = Engine(
    form=lambda operator: operator.duckdb or operator.spark,
    types=_DUCKDB_TYPES,
    list_of="{}[]",
    row_of="STRUCT({})",
    field="{} {}",
    identifier=_duckdb_identifier,
    string=_duckdb_string,
    zone="",
)
