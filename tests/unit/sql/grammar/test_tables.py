"""CREATE TABLE and DROP TABLE."""

import pytest

from tailrace.model.errors import SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.parse import parse
from tailrace.sql.statements import CreateTableStatement, DropTableStatement


def created(text: str) -> CreateTableStatement:
    (statement,) = parse(text)
    assert isinstance(statement, CreateTableStatement)
    return statement


def test_a_table_has_columns_and_a_key() -> None:
    table = created(
        "CREATE TABLE IF NOT EXISTS chat.messages (id BIGINT, body TEXT NOT NULL DEFAULT 'x', seen BOOLEAN NULL DEFAULT false,"
        " PRIMARY KEY (id, body));"
    )
    assert table.name == "chat.messages"
    assert table.if_not_exists
    assert table.columns == (
        Column("id", ColumnType("bigint")),
        Column("body", ColumnType("text"), nullable=False, default="'x'"),
        Column("seen", ColumnType("boolean"), default="false"),
    )
    assert table.primary_key == ("id", "body")


def test_a_column_may_be_the_key() -> None:
    assert created("create table t (id int primary key, x text)").primary_key == ("id",)


def test_a_table_without_a_key_is_for_the_tables_to_refuse() -> None:
    assert created("create table t (id int)").primary_key == ()


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("boolean", "boolean"),
        ("BOOL", "boolean"),
        ("smallint", "smallint"),
        ("int2", "smallint"),
        ("int", "integer"),
        ("integer", "integer"),
        ("int4", "integer"),
        ("bigint", "bigint"),
        ("int8", "bigint"),
        ("double", "double"),
        ("double precision", "double"),
        ("float", "double"),
        ("float8", "double"),
        ("text", "text"),
        ("varchar", "text"),
        ("string", "text"),
        ("varchar(20)", "varchar(20)"),
        ("character varying(3)[]", "varchar(3)[]"),
        ("char", "char(1)"),
        ("character(7)", "char(7)"),
        ("real", "real"),
        ("float4", "real"),
        ("float(24)", "real"),
        ("float(25)", "double"),
        ("time", "time"),
        ("bytes", "bytes"),
        ("bytea", "bytes"),
        ("blob", "bytes"),
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("timestamptz", "timestamp"),
        ("timestamp with time zone", "timestamp"),
        ("uuid", "uuid"),
        ("interval", "interval"),
        ("json", "json"),
        ("jsonb", "json"),
        ("decimal(10, 2)", "decimal(10, 2)"),
        ("numeric(5)", "decimal(5, 0)"),
        ("numeric", "decimal"),
        ("decimal(60, 3)", "decimal(60, 3)"),
        ("numeric(3, -2)", "decimal(3, -2)"),
        ("integer[]", "integer[]"),
        ("text[][]", "text[][]"),
        ("decimal(4,1)[]", "decimal(4, 1)[]"),
    ],
)
def test_every_type_has_its_names(written: str, kind: str) -> None:
    assert str(created(f"CREATE TABLE t (a {written}, b int)").columns[0].type) == kind


@pytest.mark.parametrize(
    "default", ["1", "-1.5", "'it''s'", "TRUE", "NULL", "DATE '2026-01-28'", "TIMESTAMP '2026-01-28 12:00'"]
)
def test_a_default_is_a_constant_as_it_was_written(default: str) -> None:
    assert created(f"CREATE TABLE t (a int DEFAULT {default}, b int)").columns[0].default == default


def test_names_without_quotes_are_lower_case() -> None:
    table = created('CREATE TABLE Chat.Messages (Id INT, "Body" TEXT, PRIMARY KEY (ID))')
    assert (table.name, [column.name for column in table.columns], table.primary_key) == (
        "chat.messages",
        ["id", "Body"],
        ("id",),
    )


def test_a_name_may_have_many_parts() -> None:
    assert created("CREATE TABLE a.b.c.d.e (id INT PRIMARY KEY)").name == "a.b.c.d.e"


def test_a_default_ends_where_the_next_constraint_begins() -> None:
    (first, second) = created("CREATE TABLE t (a TEXT DEFAULT 'NOT, NULL)' NOT NULL, ü INT DEFAULT (-1) PRIMARY KEY)").columns
    assert (first.default, second.default) == ("'NOT, NULL)'", "(-1)")


def test_a_table_is_dropped() -> None:
    assert parse("DROP TABLE IF EXISTS a.b CASCADE") == [
        DropTableStatement(text="DROP TABLE IF EXISTS a.b CASCADE", names=("a.b",), if_exists=True, cascade=True)
    ]


def test_many_tables_are_dropped() -> None:
    (statement,) = parse("DROP TABLE a, b.c, a RESTRICT")
    assert isinstance(statement, DropTableStatement)
    assert statement.names == ("a", "b.c")
    assert not statement.cascade


@pytest.mark.parametrize(
    ("text", "sqlstate", "message"),
    [
        ("CREATE TABLE t", "42601", "line 1, column 15: syntax error at end of input"),
        ("CREATE TABLE t ()", "42601", "line 1, column 14: table 't' has no columns"),
        ("CREATE TABLE t (a)", "42601", "line 1, column 19: syntax error at end of input"),
        ("CREATE TABLE t (a interval(3))", "0A000", "line 1, column 19: a length or precision of interval is not supported"),
        ("CREATE TABLE t (a interval day)", "0A000", "line 1, column 19: a length or precision of interval is not supported"),
        ("CREATE TABLE t (a money)", "0A000", "line 1, column 19: columns of the type money are not supported"),
        ("CREATE TABLE t (a varchar(0))", "22023", "length for type varchar must be at least 1"),
        ("CREATE TABLE t (a timestamp(3))", "0A000", "a length or precision of timestamp is not supported"),
        ("CREATE TABLE t (a int,)", "42601", "line 1, column 23: syntax error"),
        ("CREATE TABLE t (a int", "42601", "line 1, column 22: syntax error at end of input"),
        ("CREATE TABLE t (a int, a text)", "42701", "line 1, column 24: column 'a' is defined twice"),
        ("CREATE TABLE t (order int)", "42601", 'order is a keyword: if you mean a name, write it in quotes ("order")'),
        ("CREATE TABLE t (a decimal(1001))", "22023", "line 1, column 19: NUMERIC precision 1001 must be between 1 and 1000"),
        ("CREATE TABLE t (a decimal(3, 1001))", "22023", "NUMERIC scale 1001 must be between -1000 and 1000"),
        ("CREATE TABLE t (a int REFERENCES b (c))", "0A000", "line 1, column 23: REFERENCES is not supported"),
        ("CREATE TABLE t (a int NULL NOT NULL)", "42601", "column 'a' is both NULL and NOT NULL"),
        ("CREATE TABLE t (a int DEFAULT 1 DEFAULT 2)", "42601", "column 'a' has two defaults"),
        ("CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)", "42P16", "multiple primary keys for table 't'"),
        ("CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a))", "42P16", "multiple primary keys"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a, a))", "42701", "column 'a' is in the primary key twice"),
        ("CREATE TABLE t (a int) WITH (x = 1)", "0A000", "WITH of CREATE TABLE is not supported"),
        ("CREATE TABLE t (a int DEFAULT ?)", "0A000", "line 1, column 31: a definition can't have parameters"),
        (
            "CREATE TEMP TABLE t (a int)",
            "0A000",
            "CREATE TEMP is not supported; expected CREATE TABLE or INDEX or TYPE or TOPIC",
        ),
        (
            "CREATE TABEL t (a int)",
            "0A000",
            "CREATE TABEL is not supported; expected CREATE TABLE or INDEX or TYPE or TOPIC or SOURCE or SHADOW or USER or",
        ),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, sqlstate: str, message: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse(text)
    assert message in str(refused.value)
    assert refused.value.sqlstate == sqlstate
