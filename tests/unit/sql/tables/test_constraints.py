"""Checks, unique indexes and numbers through ALTER TABLE, rollbacks and a rebuild of the rows."""

from pathlib import Path

import pytest

from tailrace.model.errors import ConstraintError, SqlError
from tailrace.sql.tables.tables import FILE_NAME
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.sql import running_sql
from tests.support.tables import TableSql, running_tables

TABLE = "CREATE TABLE a.t (id SERIAL PRIMARY KEY, x INT CHECK (x > 0 AND x < a.t.y), y INT, code TEXT UNIQUE)"


async def refused(sql: TableSql, text: str) -> str:
    with pytest.raises(ConstraintError) as error:
        await sql.run(text)
    return error.value.sqlstate


@on_loop
async def test_a_renamed_column_keeps_its_checks_and_indexes(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run(TABLE)
        await sql.run("CREATE INDEX ON a.t (y, x)")
        await sql.run('ALTER TABLE a.t RENAME COLUMN x TO "The X"')
        await sql.run("ALTER TABLE a.t RENAME COLUMN code TO name")
        assert await refused(sql, "INSERT INTO a.t VALUES (1, 5, 4, 'a')") == "23514"
        await sql.run("INSERT INTO a.t VALUES (1, 3, 4, 'a')")
        assert await refused(sql, "INSERT INTO a.t VALUES (2, 3, 4, 'a')") == "23505"
        table = sql.tables.get("a.t")
        assert [index.columns for index in table.indexes] == [("name",), ("y", "The X")]


@on_loop
async def test_a_dropped_column_takes_its_checks_and_indexes_along(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run(TABLE)
        await sql.run("CREATE INDEX ON a.t (y, code)")
        await sql.run("ALTER TABLE a.t DROP COLUMN y")
        table = sql.tables.get("a.t")
        assert (table.checks, [index.columns for index in table.indexes]) == ((), [("code",)])
        await sql.run("INSERT INTO a.t VALUES (1, -5, 'a')")
        assert await refused(sql, "INSERT INTO a.t VALUES (2, 3, 'a')") == "23505"


@on_loop
async def test_the_rows_are_made_again_with_their_indexes(tmp_path: Path) -> None:
    store = MemoryStore()
    async with running_tables(tmp_path, store) as sql:
        await sql.run(TABLE)
        await sql.run("CREATE UNIQUE INDEX ON a.t (y)")
        await sql.run("INSERT INTO a.t (x, y, code) VALUES (1, 2, 'a'), (1, 3, 'b')")
        await sql.run("DELETE FROM a.t WHERE code = 'b'")
        assert await refused(sql, "INSERT INTO a.t (x, y, code) VALUES (1, 2, 'c')") == "23505"
    for path in tmp_path.glob(f"{FILE_NAME}*"):  # noqa: ASYNC240  a test waits for nothing else
        path.unlink()
    async with running_tables(tmp_path, store) as sql:
        assert await refused(sql, "INSERT INTO a.t (x, y, code) VALUES (1, 2, 'c')") == "23505"
        assert await refused(sql, "INSERT INTO a.t (x, y, code) VALUES (1, 5, 'a')") == "23505"
        assert await refused(sql, "INSERT INTO a.t (x, y, code) VALUES (9, 5, 'd')") == "23514"
        await sql.run("INSERT INTO a.t (x, y, code) VALUES (1, 3, 'b')")
        ((number,),) = await sql.rows("SELECT id FROM a.t WHERE code = 'b'")
        assert number > 2  # type: ignore[operator]


@on_loop
async def test_a_transaction_that_breaks_a_constraint_leaves_nothing() -> None:
    async with running_sql() as sql:
        await sql.run(TABLE)
        with pytest.raises(SqlError, match="t_code_key"):
            await sql.run("BEGIN; INSERT INTO a.t (code) VALUES ('a'); INSERT INTO a.t (code) VALUES ('b'), ('a'); COMMIT")
        assert await sql.rows("SELECT * FROM a.t") == []


@on_loop
async def test_a_unique_index_that_the_rows_break_is_not_made() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 1)")
        with pytest.raises(ConstraintError):
            await sql.run("CREATE UNIQUE INDEX v ON t (v)")
        await sql.run("INSERT INTO t VALUES (3, 1); CREATE INDEX v ON t (v)")
        assert await sql.rows("SELECT id FROM t WHERE v = 1 ORDER BY id") == [(1,), (2,), (3,)]
