"""Tables and their changes as relations, for queries that join them with topics.

The rows of a table are read from SQLite first and then kept in memory: only the columns that the query names, and only the rows
that match simple conditions of its WHERE. DuckDB checks every row again.

`table_changes('chat.messages' [, from_cursor [, to_cursor]])` becomes a subquery over the change topic of the table. Each image
of a row in a change event becomes a row, with the column types of the table and with `_change_type`, `_commit_version` (the
cursor) and `_commit_timestamp`, named as in Spark and Delta.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import pyarrow as pa
from sqlglot import exp

from tailrace.model.errors import QueryLimitError
from tailrace.model.limits import Limits
from tailrace.model.table import Column, ColumnKind, ColumnType, Table
from tailrace.sql.parameters import Parameters
from tailrace.sql.results import Result
from tailrace.sql.statements import Query

_NUMBERS = frozenset(("smallint", "integer", "bigint"))
_ROWS_AT_ONCE = 10_000


CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
META_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
TOPIC_COLUMNS_READ = ("offset", "cursor", "timestamp", "value")
"""The columns of the change topic that the subquery reads."""
_MAX_DIGITS = 38
_IN_DUCKDB: dict[ColumnKind, str] = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "text": "VARCHAR",
    "bytes": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "uuid": "UUID",
    "json": "JSON",
}
_IN_ARROW: dict[ColumnKind, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "uuid": pa.uuid(),
    "json": pa.json_(),
}


class ReadTables(Protocol):
    """Runs queries over tables; see `sql.tables`."""

    async def query(self, query: Query, params: Parameters, *, most_rows: int | None = None) -> Result: ...


class TableRelation:
    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
        self._columns = columns
        self._rows = rows
        self.schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self._rows), _ROWS_AT_ONCE):
            values = zip(*self._rows[start : start + _ROWS_AT_ONCE], strict=True)
            arrays = [_array(column.type, some) for column, some in zip(self._columns, values, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


async def read_table(
    tables: ReadTables, table: Table, wanted: Sequence[str], where: Sequence[exp.Expr], limits: Limits
) -> TableRelation:
    """Read a table. `where` are conditions on its columns that `can_push` accepts."""
    columns = [column for column in table.columns if column.name in wanted] or list(table.columns[:1])
    tree = exp.select(*(exp.column(column.name, quoted=True) for column in columns)).from_(_named(table))
    for condition in where:
        tree = tree.where(condition.copy())
    query = Query(text=tree.sql(dialect="postgres"), tree=tree, sources=(table.name,))
    found = await tables.query(query, (), most_rows=limits.joined_rows)
    if found.truncated:
        raise QueryLimitError(
            f"the query needs more than {limits.joined_rows} rows of table {table.name!r} for a join (joined_rows);"
            " restrict them by a condition on a column of the table"
        )
    return TableRelation(columns, found.rows)


def can_push(condition: exp.Expr, column: Column) -> bool:
    """Return whether a condition means the same in both engines: it compares a column of a plain type with constants of that
    type.
    """
    if not isinstance(condition, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.In | exp.Between):
        return False
    constants = [
        node for node in condition.walk() if not isinstance(node, exp.Column | exp.Identifier) and node is not condition
    ]
    if column.type.kind in _NUMBERS:
        return all(isinstance(node, exp.Literal) and node.is_int for node in constants)
    return column.type.kind == "text" and all(isinstance(node, exp.Literal) and node.is_string for node in constants)


def _named(table: Table) -> exp.Table:
    parts = [exp.to_identifier(part, quoted=True) for part in table.name.split(".")]
    if len(parts) > 3:
        return exp.Table(this=exp.Dot.build(parts[2:]), db=parts[1], catalog=parts[0])
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def _array(kind: ColumnType, values: Sequence[object]) -> pa.Array:
    target = arrow_type(kind)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, pa.array([_plain(kind, value) for value in values], target.storage_type))
    return pa.array([_plain(kind, value) for value in values], target)


def _plain(kind: ColumnType, value: object) -> object:
    if value is None:
        return None
    match kind.kind:
        case "json":
            return msgspec.json.encode(value).decode()
        case "uuid":
            return value.bytes  # type: ignore[attr-defined]
        case "timestamp":
            return _without_zone(value)
        case "decimal" if kind.precision is None or pa.types.is_floating(arrow_type(kind)):
            return float(value)  # type: ignore[arg-type]
        case "list":
            return [_plain(kind.element or ColumnType("text"), item) for item in value]  # type: ignore[attr-defined]
    return value


def _without_zone(value: object) -> object:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def changes_sql(table: Table, relation: str, wanted: Sequence[str], low: str | None, high: str | None) -> str:
    """Return the subquery in DuckDB's SQL, over the relation of the change topic. Only the wanted columns are extracted.

    `low` and `high` are the SQL of the cursors that limit it, both included.
    """
    columns = [_column(column) for column in table.columns if column.name in wanted]
    # Rows that snapshots have read are not changes.
    bounds = ["""json_extract_string("value", '$.op') <> 'read'"""]
    bounds += [f'"cursor" >= {low}'] if low is not None else []
    bounds += [f'"cursor" <= {high}'] if high is not None else []
    return f"""
        SELECT {"".join(f"{column}, " for column in columns)} {CHANGE_TYPE},
            "cursor" AS {COMMIT_VERSION}, "timestamp" AS {COMMIT_TIMESTAMP}
        FROM (
            SELECT "cursor", "timestamp", {CHANGE_TYPE},
                json_extract("value", CASE WHEN {CHANGE_TYPE} IN ('delete', 'update_preimage')
                    THEN '$.old' ELSE '$.new' END) AS image
            FROM (
                SELECT "cursor", "timestamp", "value", unnest(
                    CASE json_extract_string("value", '$.op')
                    WHEN 'update' THEN ['update_preimage', 'update_postimage']
                    WHEN 'insert' THEN ['insert'] ELSE ['delete'] END) AS {CHANGE_TYPE}
                FROM {relation} WHERE {" AND ".join(bounds)}
            )
        )"""  # noqa: S608


def _column(column: Column) -> str:
    path = "'$.\"" + column.name.replace("'", "''") + "\"'"
    return f"{_value(column.type, path)} AS {_quoted(column.name)}"


def _value(kind: ColumnType, path: str) -> str:
    text = f"json_extract_string(image, {path})"
    match kind.kind:
        case "text":
            return text
        case "bytes":
            return f"from_base64({text})"
        case "json":
            return f"CASE WHEN {text} IS NOT NULL THEN json_extract(image, {path}) END"
        case "list":
            return f"CAST({_items(kind, f'json_extract(image, {path})')} AS {duckdb_type(kind)})"
    return f"CAST({text} AS {duckdb_type(kind)})"


def _items(kind: ColumnType, json: str) -> str:
    """Return the SQL for a list in JSON, in which bytes are base64."""
    if kind.element is not None and kind.element.kind == "bytes":
        return f"list_transform(CAST({json} AS VARCHAR[]), lambda item: from_base64(item))"
    return json


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duckdb_type(kind: ColumnType) -> str:
    if kind.kind == "list":
        return f"{duckdb_type(kind.element or ColumnType('text'))}[]"
    if kind.kind == "decimal":
        return f"DECIMAL({kind.precision}, {kind.scale or 0})" if _fits(kind) else "DOUBLE"
    return _IN_DUCKDB[kind.kind]


def arrow_type(kind: ColumnType) -> pa.DataType:
    if kind.kind == "list":
        return pa.list_(arrow_type(kind.element or ColumnType("text")))
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale or 0) if _fits(kind) else pa.float64()
    return _IN_ARROW[kind.kind]


def _fits(decimal: ColumnType) -> bool:
    """Return whether DuckDB has a decimal of this precision. Others become doubles."""
    return decimal.precision is not None and decimal.precision <= _MAX_DIGITS
