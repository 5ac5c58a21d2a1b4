"""CREATE TABLE and DROP TABLE.

CREATE TABLE [IF NOT EXISTS] name (
    column type [NOT NULL | NULL] [DEFAULT expression] [PRIMARY KEY], ...
    [, PRIMARY KEY (column, ...)]
)
DROP TABLE [IF EXISTS] name [CASCADE]
"""

from typing import NamedTuple

from tailrace.model.table import Column, ColumnKind, ColumnType
from tailrace.sql.grammar.token_reader import TokenReader
from tailrace.sql.statements import CreateTableStatement, DropTableStatement, Statement

_TABLE = "the name of a table"
_MAX_PRECISION = 38
_DEFAULT_DECIMAL = (18, 3)
TYPES: dict[str, ColumnKind] = {
    "BOOLEAN": "boolean",
    "BOOL": "boolean",
    "SMALLINT": "smallint",
    "INT2": "smallint",
    "INTEGER": "integer",
    "INT": "integer",
    "INT4": "integer",
    "BIGINT": "bigint",
    "INT8": "bigint",
    "DOUBLE PRECISION": "double",
    "DOUBLE": "double",
    "FLOAT8": "double",
    "FLOAT": "double",
    "DECIMAL": "decimal",
    "NUMERIC": "decimal",
    "TEXT": "text",
    "VARCHAR": "text",
    "STRING": "text",
    "BYTES": "bytes",
    "BYTEA": "bytes",
    "BLOB": "bytes",
    "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "UUID": "uuid",
    "JSONB": "json",
    "JSON": "json",
}
_CONSTRAINTS = ("NOT NULL", "NULL", "DEFAULT", "PRIMARY KEY")


class _ColumnDefinition(NamedTuple):
    column: Column
    is_key: bool


def create_table(reader: TokenReader, text: str) -> Statement:
    reader.expect("CREATE TABLE")
    if_not_exists = reader.take("IF NOT EXISTS")
    name = reader.name(_TABLE)
    reader.expect_open()
    columns: list[Column] = []
    key: list[str] = []
    while True:
        if reader.take("PRIMARY KEY"):
            if key:
                reader.reject("the table has two primary keys; write a key of several columns as PRIMARY KEY (a, b)")
            key = _key(reader)
        else:
            column, is_key = _column(reader, columns)
            columns.append(column)
            if is_key and key:
                reader.reject("the table has two primary keys; write a key of several columns as PRIMARY KEY (a, b)")
            key = [column.name] if is_key else key
        if reader.closes():
            break
    reader.expect_end()
    return CreateTableStatement(
        text=text, name=name, columns=tuple(columns), primary_key=tuple(key), if_not_exists=if_not_exists
    )


def drop_table(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP TABLE")
    if_exists = reader.take("IF EXISTS")
    name = reader.name(_TABLE)
    cascade = reader.take("CASCADE")
    reader.expect_end("" if cascade else "CASCADE")
    return DropTableStatement(text=text, name=name, if_exists=if_exists, cascade=cascade)


def _key(reader: TokenReader) -> list[str]:
    reader.expect_open()
    key: list[str] = []
    while True:
        name = reader.word("the name of a column")
        if name in key:
            reader.reject(f"column {name!r} is in the primary key twice; name it once")
        key.append(name)
        if reader.closes():
            return key


def _column(reader: TokenReader, known: list[Column]) -> _ColumnDefinition:
    name = reader.word("the name of a column, or PRIMARY KEY")
    if any(column.name == name for column in known):
        reader.reject(f"column {name!r} is defined twice; remove one definition")
    type_ = _type(reader)
    nullable: bool | None = None
    default: str | None = None
    is_key = False
    left = list(_CONSTRAINTS)
    while any(reader.sees(phrase) for phrase in left):
        constraint = reader.one_of(*left)
        left.remove(constraint)
        if constraint == "DEFAULT":
            default = _default(reader)
        elif constraint == "PRIMARY KEY":
            is_key = True
        elif nullable is not None:
            reader.reject(f"column {name!r} is both NULL and NOT NULL; use one of them")
        else:
            nullable = constraint == "NULL"
    if not (reader.sees(",") or reader.sees(")")):
        reader.fail(f"{', '.join(left)}, a comma or )")
    return _ColumnDefinition(Column(name=name, type=type_, nullable=nullable is not False, default=default), is_key)


def _type(reader: TokenReader) -> ColumnType:
    # DOUBLE PRECISION comes before DOUBLE in the table, so the longer name matches first.
    name = next((name for name in TYPES if reader.take(name)), None)
    if name is None:
        reader.fail(f"a type ({', '.join(sorted(set(TYPES.values())))}, or one of these and [])")
    kind = TYPES[name]
    if kind == "decimal":
        type_ = _decimal(reader)
    else:
        type_ = ColumnType(kind)
        if reader.sees("("):
            reader.fail(f"no length, because {name} holds values of any length")
    while reader.takes_brackets():
        type_ = ColumnType("list", element=type_)
    return type_


def _decimal(reader: TokenReader) -> ColumnType:
    precision, scale = _DEFAULT_DECIMAL
    if reader.opens():
        precision, scale = reader.integer("the number of digits"), 0
        if not reader.closes():
            scale = reader.integer("the number of digits after the decimal point")
            reader.expect(")")
    if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
        reader.reject(
            f"decimal({precision}, {scale}) is not valid; a decimal has 1 to {_MAX_PRECISION} digits, of which 0 to all are"
            " after the decimal point"
        )
    return ColumnType("decimal", precision=precision, scale=scale)


def _default(reader: TokenReader) -> str:
    """Skip an expression, and return its text. What follows the first value may be another constraint."""
    start = reader.index()
    reader.skip_value("an expression")
    if not any(reader.sees(phrase) for phrase in (*_CONSTRAINTS, ",", ")")):
        reader.until_comma(*_CONSTRAINTS)
    return reader.since(start)
