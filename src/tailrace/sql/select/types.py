"""The types of table columns in DuckDB and in Arrow."""

import pyarrow as pa

from tailrace.model.table import ColumnKind, ColumnType

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
    """DuckDB's decimals have a precision, and not a large one. Others are doubles there."""
    return decimal.precision is not None and decimal.precision <= _MAX_DIGITS
