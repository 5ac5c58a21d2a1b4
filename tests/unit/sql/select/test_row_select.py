"""A few rows of one table are answered alike by the fast path and by the general way, whatever is selected."""

from pathlib import Path

import msgspec
import pytest

from tailrace.model.errors import SqlError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.parse import parse
from tailrace.sql.results import Result
from tailrace.sql.select.execution import QueryExecution
from tailrace.sql.select.fast_row_select import RowSelects
from tailrace.sql.statements import Query
from tests.support.aio import on_loop
from tests.support.tables import TableSql, running_tables
from tests.unit.sql.select.test_point_select import COLUMNS, VALUES

FAST: dict[str, list[object]] = {
    "SELECT id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r FROM t ORDER BY id": [],
    "SELECT id, g FROM t WHERE c = ? ORDER BY id": [2],
    "SELECT id, d + c, e * 2, f / 3, g || '!' AS said FROM t WHERE g = ? ORDER BY id": ["text"],
    "SELECT id FROM t WHERE f > 12.2 AND e < 1 ORDER BY id": [],
    "SELECT id, j, i, date_trunc('day', j) FROM t WHERE i >= ? ORDER BY id": ["2026-01-01"],
    "SELECT id FROM t ORDER BY c DESC NULLS LAST, g NULLS FIRST, id DESC LIMIT 3 OFFSET 1": [],
    "SELECT id FROM t ORDER BY c, id": [],
    "SELECT id FROM t ORDER BY c DESC, id LIMIT ?": [2],
    "SELECT l ->> 'a', l -> 'b', upper(g), length(g), h FROM t WHERE id = 1 AND a": [],
    "SELECT CASE WHEN c > 1 THEN 'many' ELSE 'few' END, coalesce(g, 'none') FROM t WHERE c IS NOT NULL ORDER BY id": [],
    "SELECT id FROM t AS x WHERE x.c BETWEEN ? AND ? AND NOT (x.g IS NULL) ORDER BY x.id": [1, 100],
    "SELECT id FROM t WHERE k = ? OR c IN (7, 8) ORDER BY id": ["f81d4fae-7dec-41d0-a765-00a0c91e6bf6"],
    "SELECT m[1], m, n, q, o, p, k FROM t WHERE id < 2 ORDER BY id": [],
    "SELECT id FROM t LIMIT 0": [],
    "SELECT now() = now(), id FROM t WHERE id = 3 AND g LIKE 'r%'": [],
}
GENERAL = (
    "SELECT count(*) FROM t",
    "SELECT DISTINCT c FROM t ORDER BY 1",
    "SELECT id, row_number() OVER (ORDER BY id) FROM t ORDER BY id",
    "SELECT id FROM t WHERE c = (SELECT max(c) FROM t) ORDER BY id",
    "SELECT repeat(g, 2) FROM t ORDER BY id",
    "SELECT s FROM t WHERE id = 1 AND c > 0",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id ORDER BY 1",
)


async def with_rows(sql: TableSql) -> None:
    await sql.run(f"CREATE TABLE t (id integer PRIMARY KEY, {COLUMNS})")
    marks = ", ".join("?" * (1 + len(VALUES)))
    await sql.run(f"INSERT INTO t VALUES ({marks})", [[1, *VALUES], [0, *VALUES]])
    await sql.run("INSERT INTO t (id, c, g) VALUES (2, NULL, 'row'), (3, 7, 'row'), (4, 8, NULL), (5, -1, 'z')")


@on_loop
async def test_the_fast_path_answers_as_the_general_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_tables(tmp_path) as sql:
        await with_rows(sql)
        fast: list[Result] = []
        with monkeypatch.context() as patched:
            patched.setattr(QueryExecution, "run", _refuse)
            fast = [await sql.run(text, params) for text, params in FAST.items()]
        monkeypatch.setattr(RowSelects, "bind", lambda *_: None)
        general = [await sql.run(text, params) for text, params in FAST.items()]
        for text, one, other in zip(FAST, fast, general, strict=True):
            assert one == other, text
        assert sum(len(one.rows) for one in fast) > 20


def _refuse(*_: object) -> Result:
    raise AssertionError("the query was run by a worker")


@on_loop
async def test_other_queries_take_the_general_way(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await with_rows(sql)
        plans = RowSelects(sql.broker.tables.find, DEFAULT_LIMITS)
        for text in GENERAL:
            (query,) = parse(text)
            assert isinstance(query, Query)
            assert plans.bind(query, ()) is None, text
            await sql.run(text)


@on_loop
async def test_errors_are_those_of_the_general_way(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await with_rows(sql)
        with pytest.raises(SqlError, match="division by zero") as failed:
            await sql.run("SELECT 1 / (c - c) FROM t WHERE c IS NOT NULL")
        assert failed.value.sqlstate == "22012"
        assert await sql.rows("SELECT 1 / c FROM t WHERE c = 7") == [(0,)]


@on_loop
async def test_many_rows_are_left_to_the_workers(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_rows=4)
    async with running_tables(tmp_path, limits=limits) as sql:
        await with_rows(sql)
        assert len((await sql.run("SELECT id FROM t WHERE id < 4 ORDER BY id")).rows) == 4
        result = await sql.run("SELECT id FROM t ORDER BY id")
        assert (len(result.rows), result.truncated) == (4, True)


@on_loop
async def test_a_plan_is_not_used_for_another_table_of_the_name(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await with_rows(sql)
        text = "SELECT id, g FROM t WHERE g = 'row' ORDER BY id"
        assert len(await sql.rows(text)) == 2
        await sql.run("DROP TABLE t")
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, g text)")
        await sql.run("INSERT INTO t VALUES (9, 'row')")
        assert await sql.rows(text) == [(9, "row")]
