"""The types of expressions, by PostgreSQL's names.

A numeric carries its precision and scale as far as they are known before any value is: a column has those of its declaration,
a sum of two has the larger scale. Engines with decimals of a fixed scale need that; to the rules of PostgreSQL it is one type.
"""

import msgspec

from tailrace.model.table import ColumnKind, ColumnType

_OF_COLUMN: dict[ColumnKind, str] = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "double": "float8",
    "decimal": "numeric",
    "text": "text",
    "bytes": "bytea",
    "date": "date",
    # A column of this kind holds an instant in UTC, whichever way it was declared.
    "timestamp": "timestamptz",
    "uuid": "uuid",
    "json": "jsonb",
    "real": "float4",
    "time": "time",
    "interval": "interval",
    "char": "bpchar",
}
_TO_COLUMN: dict[str, ColumnKind] = {name: kind for kind, name in _OF_COLUMN.items()} | {
    "varchar": "text",
    "bpchar": "text",
    "name": "text",
    "regtype": "text",
    "unknown": "text",
    "json": "json",
    "timestamp": "timestamp",
}


_ENUM = "enum"
_BETWEEN_LABELS = "\x1f"
"""Separates the parts of an enum's name: what it is, its labels, and what it is called."""


class SqlType(msgspec.Struct, frozen=True):
    name: str
    """PostgreSQL's short name: `int4`, `timestamptz`. That of an array is the name of its elements and `[]`. That of an enum
    carries its labels, by which its values are read and ordered."""
    precision: int | None = None
    scale: int | None = None
    """Digits after the point, if all values of this numeric have as many."""
    length: int | None = None
    """The `n` of `varchar(n)` and `char(n)`."""

    @property
    def is_array(self) -> bool:
        return self.name.endswith("[]")

    @property
    def element(self) -> "SqlType":
        return SqlType(self.name[:-2], self.precision, self.scale, self.length)

    @property
    def array(self) -> "SqlType":
        return SqlType(f"{self.name}[]", self.precision, self.scale, self.length)

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of an enum in order; none for other types."""
        return tuple(self.name.split(_BETWEEN_LABELS)[1:-1]) if is_enum(self.name) else ()

    @property
    def plain(self) -> "SqlType":
        """Return the type without precision, scale and length."""
        return SqlType(self.name)

    def __str__(self) -> str:
        """Return the name that PostgreSQL prints."""
        if self.is_array:
            return f"{self.element}[]"
        if is_enum(self.name):
            return self.name.rpartition(_BETWEEN_LABELS)[2]
        return _PRINTED.get(self.name, self.name)


_PRINTED = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "bpchar": "character",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}

BOOL = SqlType("bool")
INT2 = SqlType("int2")
INT4 = SqlType("int4")
INT8 = SqlType("int8")
FLOAT4 = SqlType("float4")
FLOAT8 = SqlType("float8")
NUMERIC = SqlType("numeric")
TEXT = SqlType("text")
BYTEA = SqlType("bytea")
DATE = SqlType("date")
TIME = SqlType("time")
TIMESTAMP = SqlType("timestamp")
TIMESTAMPTZ = SqlType("timestamptz")
INTERVAL = SqlType("interval")
UUID = SqlType("uuid")
JSONB = SqlType("jsonb")
UNKNOWN = SqlType("unknown")
"""The type of a string constant or a null until what stands around it decides."""
RECORD = SqlType("record")

INTEGERS = frozenset(("int2", "int4", "int8"))
FLOATS = frozenset(("float4", "float8"))
TEXTS = frozenset(("text", "varchar", "bpchar", "name"))
_DIGITS = {"int2": 5, "int4": 10, "int8": 19}


def is_enum(name: str) -> bool:
    """Return whether a type's name is that of an enum."""
    return name.startswith(_ENUM + _BETWEEN_LABELS) and not name.endswith("[]")


def of_column(column: ColumnType) -> SqlType:
    """Return the type of a column's values in expressions."""
    if column.kind == "enum":
        return SqlType(_BETWEEN_LABELS.join((_ENUM, *column.labels, column.name)))
    if column.kind == "list":
        return of_column(column.element or ColumnType("text")).array
    if column.kind == "decimal":
        return SqlType("numeric", column.precision, (column.scale or 0) if column.precision is not None else None)
    if column.length is not None:
        return SqlType("varchar" if column.kind == "text" else _OF_COLUMN[column.kind], length=column.length)
    return SqlType(_OF_COLUMN[column.kind])


def to_column(sql_type: SqlType) -> ColumnType:
    """Return the type of a result column."""
    if sql_type.is_array:
        return ColumnType("list", element=to_column(sql_type.element))
    if is_enum(sql_type.name):
        return ColumnType("enum", name=str(sql_type), labels=sql_type.labels)
    if sql_type.name == "numeric":
        precision, scale = digits_of(sql_type) or (None, None)
        return ColumnType("decimal", precision=precision, scale=scale)
    return ColumnType(_TO_COLUMN[sql_type.name])


def digits_of(sql_type: SqlType) -> tuple[int, int] | None:
    """Return the precision and scale of a number whose scale is fixed, or `None`."""
    if sql_type.name in _DIGITS:
        return _DIGITS[sql_type.name], 0
    if sql_type.name == "numeric" and sql_type.precision is not None and sql_type.scale is not None:
        # A scale outside of the precision rounds before the point, or leaves no place for some digits after it.
        return (sql_type.precision, sql_type.scale) if 0 <= sql_type.scale <= sql_type.precision else None
    return None
