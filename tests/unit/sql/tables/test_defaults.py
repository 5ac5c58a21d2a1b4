"""Defaults of columns: expressions of PostgreSQL, and constants of tables that are older than these."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tailrace.model.errors import SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.tables.defaults import checked_default, default_of
from tests.support.aio import on_loop
from tests.support.tables import running_tables

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)


def column(kind: str, default: str) -> Column:
    element = ColumnType("integer") if kind == "list" else None
    return Column("c", ColumnType(kind, element=element), True, default)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "written", "kept"),
    [
        ("timestamp", "now()", "2026-01-31T12:30:00.000000Z"),
        ("timestamp", "CURRENT_TIMESTAMP - interval '1 hour'", "2026-01-31T11:30:00.000000Z"),
        ("date", "current_date", "2026-01-31"),
        ("text", "lower('X') || 'y'", "xy"),
        ("integer", "1.5", 2),
        ("integer", "-(2 + 3)", -5),
        ("boolean", "'yes'", 1),
        ("json", "'{\"a\": 1}'", '{"a":1}'),
        ("list", "'{1,2}'", "[1,2]"),
        ("list", "ARRAY[1, 2]", "[1,2]"),
        ("bytes", "'\\x0aff'", b"\n\xff"),
        ("timestamp", "TIMESTAMP '2026-01-01 12:00:00+02'", "2026-01-01T12:00:00.000000Z"),
        ("text", "NULL", None),
    ],
)
def test_a_default_is_an_expression_of_postgres(kind: str, written: str, kept: object) -> None:
    assert default_of(checked_default(column(kind, written)))(NOW) == kept


@pytest.mark.parametrize(
    ("kind", "written", "kept"),
    [
        ("boolean", "1", 1),
        ("json", "5", "5"),
        ("list", "'[1, 2]'", "[1,2]"),
        ("timestamp", "TIMESTAMP '2026-01-01 12:00:00+02:00'", "2026-01-01T10:00:00.000000Z"),
        ("text", "DATE '20260105'", "20260105"),
        ("integer", "- 5", -5),
        ("text", "'it''s'", "it's"),
    ],
)
def test_a_default_of_an_older_table_keeps_its_value(kind: str, written: str, kept: object) -> None:
    assert default_of(column(kind, written))(NOW) == kept


@pytest.mark.parametrize(
    ("kind", "written", "sqlstate", "message"),
    [
        ("boolean", "1", "42804", "is of type boolean but default expression is of type integer"),
        ("integer", "'x'", "22P02", 'invalid input syntax for type integer: "x"'),
        ("integer", "other + 1", "0A000", "cannot use column reference in DEFAULT expression"),
        ("integer", "(SELECT 1)", "0A000", "cannot use subquery in DEFAULT expression"),
        ("integer", "no_such_function()", "42883", "no_such_function"),
        ("integer", "1 +", "42601", "syntax error"),
        ("integer", "1), (2", "42601", "expected one expression"),
    ],
)
def test_a_default_that_postgres_refuses_is_refused(kind: str, written: str, sqlstate: str, message: str) -> None:
    with pytest.raises(SqlError, match=message.replace("(", r"\(").replace(")", r"\)")) as failed:
        checked_default(column(kind, written))
    assert failed.value.sqlstate == sqlstate


@on_loop
async def test_each_row_gets_its_own_default_and_a_statement_has_one_time(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run(
            "CREATE TABLE t (id bigint PRIMARY KEY, at timestamp DEFAULT now(),"
            " made_by text NOT NULL DEFAULT lower('ME') || '!',"
            " tag uuid DEFAULT gen_random_uuid() NOT NULL, price decimal(5, 2) DEFAULT -(1.5))"
        )
        await sql.run("INSERT INTO t (id) VALUES (1), (2)")
        await sql.run("INSERT INTO t (id, made_by) VALUES (3, DEFAULT) RETURNING tag")
        await sql.run("UPDATE t SET tag = DEFAULT, made_by = 'x' WHERE id = 2")
        rows = await sql.rows("SELECT id, at, made_by, tag, price::text FROM t ORDER BY id")
        assert [row[2] for row in rows] == ["me!", "x", "me!"]
        assert {row[4] for row in rows} == {"-1.50"}
        assert len({row[3] for row in rows}) == 3
        assert rows[0][1] == rows[1][1]
        assert all(row[1] is not None for row in rows)
