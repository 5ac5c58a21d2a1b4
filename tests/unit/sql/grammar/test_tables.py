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
        ("bytes", "bytes"),
        ("bytea", "bytes"),
        ("blob", "bytes"),
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("timestamptz", "timestamp"),
        ("timestamp with time zone", "timestamp"),
        ("uuid", "uuid"),
        ("json", "json"),
        ("jsonb", "json"),
        ("decimal(10, 2)", "decimal(10, 2)"),
        ("numeric(5)", "decimal(5, 0)"),
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


def test_a_table_is_dropped() -> None:
    assert parse("DROP TABLE IF EXISTS a.b CASCADE") == [
        DropTableStatement(text="DROP TABLE IF EXISTS a.b CASCADE", name="a.b", if_exists=True, cascade=True)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t", "line 1, column 15: expected (, found the end of the statement"),
        ("CREATE TABLE t ()", "line 1, column 17: expected the name of a column, or PRIMARY KEY, found ')'"),
        ("CREATE TABLE t (a)", "line 1, column 18: expected a type (bigint, boolean"),
        ("CREATE TABLE t (a\n  money)", "line 2, column 3: expected a type"),
        ("CREATE TABLE t (a int,)", "line 1, column 23: expected the name of a column"),
        ("CREATE TABLE t (a int", "expected NOT NULL, NULL, DEFAULT, PRIMARY KEY, a comma or ), found the end"),
        ("CREATE TABLE t (a int, a text)", "line 1, column 24: column 'a' is defined twice"),
        ("CREATE TABLE t (a varchar(20))", "expected no length, because VARCHAR holds values of any length"),
        ("CREATE TABLE t (a decimal(99))", "decimal(99, 0) is not valid"),
        ("CREATE TABLE t (a decimal(3, 4))", "decimal(3, 4) is not valid"),
        ("CREATE TABLE t (a int CHECK (a > 1))", "line 1, column 23: expected NOT NULL"),
        ("CREATE TABLE t (a int REFERENCES b (c))", "found 'REFERENCES'"),
        ("CREATE TABLE t (a int DEFAULT, b int)", "line 1, column 30: expected an expression, found ','"),
        ("CREATE TABLE t (a int NULL NOT NULL)", "column 'a' is both NULL and NOT NULL"),
        ("CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)", "two primary keys"),
        ("CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a))", "two primary keys"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a, a))", "column 'a' is in the primary key twice"),
        ("CREATE TABLE t (a int) WITH (x = 1)", "line 1, column 24: expected the end of the statement, found 'WITH'"),
        ("CREATE TABLE t AS SELECT 1", "line 1, column 16: expected (, found 'AS'"),
        ("CREATE TEMP TABLE t (a int)", "CREATE TEMP is not supported; expected CREATE TABLE or TOPIC"),
        ("CREATE TABEL t (a int)", "CREATE TABEL is not supported; expected CREATE TABLE or TOPIC; did you mean 'TABLE'?"),
        ("DROP TABLE a, b", "line 1, column 13: expected CASCADE or the end of the statement, found ','"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse(text)
    assert message in str(refused.value)
