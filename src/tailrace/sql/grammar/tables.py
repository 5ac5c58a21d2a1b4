"""CREATE TABLE and DROP TABLE.

CREATE TABLE [IF NOT EXISTS] name (
    column type [NOT NULL | NULL] [DEFAULT constant] [PRIMARY KEY], ...
    [, PRIMARY KEY (column, ...)]
)
DROP TABLE [IF EXISTS] name [CASCADE]
"""

from typing import NamedTuple

from tailrace.model.table import Column, ColumnKind, ColumnType
from tailrace.sql.statements import CreateTable, DropTable, Statement
from tailrace.sql.words import Words

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


class _Described(NamedTuple):
    column: Column
    is_key: bool


def create_table(words: Words, text: str) -> Statement:
    words.expect("CREATE TABLE")
    if_not_exists = words.take("IF NOT EXISTS")
    name = words.name(_TABLE)
    words.expect_open()
    columns: list[Column] = []
    key: list[str] = []
    while True:
        if words.take("PRIMARY KEY"):
            if key:
                words.refuse("the table has two primary keys; a key of many columns is written PRIMARY KEY (a, b)")
            key = _key(words)
        else:
            column, is_key = _column(words, columns)
            columns.append(column)
            if is_key and key:
                words.refuse("the table has two primary keys; a key of many columns is written PRIMARY KEY (a, b)")
            key = [column.name] if is_key else key
        if words.closes():
            break
    words.expect_end()
    return CreateTable(text=text, name=name, columns=tuple(columns), primary_key=tuple(key), if_not_exists=if_not_exists)


def drop_table(words: Words, text: str) -> Statement:
    words.expect("DROP TABLE")
    if_exists = words.take("IF EXISTS")
    name = words.name(_TABLE)
    cascade = words.take("CASCADE")
    words.expect_end("" if cascade else "CASCADE")
    return DropTable(text=text, name=name, if_exists=if_exists, cascade=cascade)


def _key(words: Words) -> list[str]:
    words.expect_open()
    key: list[str] = []
    while True:
        name = words.word("the name of a column")
        if name in key:
            words.refuse(f"column {name!r} is twice in the primary key")
        key.append(name)
        if words.closes():
            return key


def _column(words: Words, known: list[Column]) -> _Described:
    name = words.word("the name of a column, or PRIMARY KEY")
    if any(column.name == name for column in known):
        words.refuse(f"column {name!r} is there twice")
    type_ = _type(words)
    nullable: bool | None = None
    default: str | None = None
    is_key = False
    left = list(_CONSTRAINTS)
    while any(words.sees(phrase) for phrase in left):
        constraint = words.one_of(*left)
        left.remove(constraint)
        if constraint == "DEFAULT":
            default = _constant(words)
        elif constraint == "PRIMARY KEY":
            is_key = True
        elif nullable is not None:
            words.refuse(f"column {name!r} is both NULL and NOT NULL")
        else:
            nullable = constraint == "NULL"
    if not (words.sees(",") or words.sees(")")):
        words.fail(f"{', '.join(left)}, a comma or )")
    return _Described(Column(name=name, type=type_, nullable=nullable is not False, default=default), is_key)


def _type(words: Words) -> ColumnType:
    # The longest name first, so that DOUBLE PRECISION is not taken for DOUBLE.
    name = next((name for name in TYPES if words.take(name)), None)
    if name is None:
        words.fail(f"a type ({', '.join(sorted(set(TYPES.values())))}, or one of these and [])")
    kind = TYPES[name]
    if kind == "decimal":
        type_ = _decimal(words)
    else:
        type_ = ColumnType(kind)
        if words.sees("("):
            words.fail(f"no length: {name} takes values of any length")
    while words.takes_brackets():
        type_ = ColumnType("list", element=type_)
    return type_


def _decimal(words: Words) -> ColumnType:
    precision, scale = _DEFAULT_DECIMAL
    if words.opens():
        precision, scale = words.integer("the number of digits"), 0
        if not words.closes():
            scale = words.integer("the number of digits behind the point")
            words.expect(")")
    if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
        words.refuse(
            f"decimal({precision}, {scale}) can't be: it has 1 to {_MAX_PRECISION} digits, of which 0 to all behind the point"
        )
    return ColumnType("decimal", precision=precision, scale=scale)


def _constant(words: Words) -> str:
    start = words.mark()
    for prefix in ("DATE", "TIMESTAMP", "UUID", "JSON"):
        if words.take(prefix):
            words.string(f"the text of a {prefix.lower()}")
            return words.since(start)
    words.step_over_constant("a constant: a number, a text, TRUE, FALSE or NULL")
    return words.since(start)
