"""A row by its key is answered alike by the fast path and by the general way, whatever the types of its columns."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.sql.parse import parse
from tailrace.sql.results import Result
from tailrace.sql.select.fast_point_select import PointSelects
from tailrace.sql.statements import Query
from tests.support.aio import on_loop
from tests.support.tables import TableSql, running_tables

KEYS: dict[str, tuple[object, list[object]]] = {
    "smallint": (-7, [-7, 7, 1 << 40]),
    "integer": (7, [7, 8]),
    "bigint": (1 << 60, [1 << 60, 0]),
    "text": ("it's ü", ["it's ü", "IT'S Ü", ""]),
    "uuid": (
        "f81d4fae-7dec-41d0-a765-00a0c91e6bf6",
        ["F81D4FAE7DEC41D0A76500A0C91E6BF6", UUID("f81d4fae-7dec-41d0-a765-00a0c91e6bf6")],
    ),
    "date": ("2026-01-31", ["2026-01-31", "20260131", date(2026, 1, 31)]),
    "timestamp": (
        "2026-01-31 13:45:00.5",
        ["2026-01-31 15:45:00.5+02", datetime(2026, 1, 31, 13, 45, 0, 500_000, tzinfo=UTC)],
    ),
    "bytes": ("\\x00ff", ["\\x00ff", b"\x00\xff"]),
}
GENERAL_KEYS: dict[str, tuple[object, list[object]]] = {
    "boolean": (True, [True]),
    "double": (0.5, [0.5]),
    "decimal(10, 2)": ("1.50", [Decimal("1.5"), "1.50"]),
}
COLUMNS = """a boolean, b smallint, c integer, d bigint, e double, f decimal(10, 2), g text, h bytes, i date, j timestamp,
    k uuid,
    l json, m integer[], n timestamp[], o decimal, p decimal(38, 3), q uuid[], r bytes[], s json[]"""
VALUES = (
    *(True, 1, 2, 1 << 40, 0.1, Decimal("12.30"), "text", b"\x00\xff", date(2026, 1, 31)),
    datetime(2026, 1, 31, 13, 45, 0, 123456, tzinfo=UTC),
    UUID("f81d4fae-7dec-41d0-a765-00a0c91e6bf6"),
    *({"b": [1, None], "a": "ü"}, [1, None, 3], ["2026-01-31 00:00:00", None], Decimal("1.500"), Decimal("-2")),
    *([UUID("f81d4fae-7dec-41d0-a765-00a0c91e6bf6"), None], ["\\x00", None], [{"a": 1}, None]),
)


async def both(sql: TableSql, text: str, params: list[object], *, is_fast: bool = True) -> Result:
    """The answer of the fast path, which must be that of the general one."""
    (query,) = parse(text)
    assert isinstance(query, Query)
    bound = PointSelects(sql.broker.tables.find).bind(query, params)
    assert (bound is not None) == is_fast
    fast = await sql.run(text, params)
    at_once = sql.queries.run_at_once(query, params)
    is_unique = bound is not None and bound.one_row_sql is not None
    assert at_once == (fast if is_unique and fast.rows else None)
    general = await sql.run(f"SELECT * FROM ({text}) AS same", params)
    assert fast == general
    return fast


@on_loop
async def test_every_type_of_column_is_answered_alike(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run(f"CREATE TABLE t (id integer PRIMARY KEY, {COLUMNS})")
        await sql.run(f"INSERT INTO t VALUES ({', '.join('?' * (1 + len(VALUES)))})", [1, *VALUES])
        await sql.run("INSERT INTO t (id) VALUES (2)")
        found = await both(sql, "SELECT * FROM t WHERE id = ?", [1])
        assert len(found.rows) == 1 and len(found.columns) == 1 + len(VALUES)
        await both(sql, "SELECT * FROM t WHERE id = ?", [2])
        await both(sql, "SELECT * FROM T WHERE ID = 3", [])
        await both(sql, "SELECT p AS x, id, id AS a FROM t WHERE id = 1", [])


@pytest.mark.parametrize("kind", [*KEYS, *GENERAL_KEYS])
@on_loop
async def test_every_type_of_key_is_found_alike(tmp_path: Path, kind: str) -> None:
    stored, asked = (KEYS | GENERAL_KEYS)[kind]
    async with running_tables(tmp_path) as sql:
        await sql.run(f"CREATE TABLE t (k {kind}, n integer, v text, PRIMARY KEY (k, n))")
        await sql.run("INSERT INTO t VALUES (?, 1, 'one'), (?, 2, 'two')", [stored, stored])
        for value in asked:
            found = await both(sql, "SELECT v, k FROM t WHERE k = ? AND n = 2", [value], is_fast=kind in KEYS)
            assert [row[0] for row in found.rows] in (["two"], [])
        assert (await sql.run("SELECT v FROM t WHERE k = ? AND n = ?", [asked[0], 1])).rows == [("one",)]


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT v FROM t WHERE id = ?", ["1"]),
        ("SELECT v FROM t WHERE id = ?", [1.0]),
        ("SELECT v FROM t WHERE id = ?", [None]),
        ("SELECT v FROM t WHERE id = ?", [1 << 70]),
        ("SELECT v FROM t WHERE id = 1.0", []),
        ("SELECT v FROM t WHERE id = 1 LIMIT 1", []),
        ("SELECT v || '' AS v FROM t WHERE id = 1", []),
        ("SELECT x.v FROM t AS x WHERE id = 1", []),
        ("SELECT count(*) AS c FROM t WHERE id = 1", []),
        ("SELECT DISTINCT v FROM t WHERE id = 1", []),
    ],
)
@on_loop
async def test_other_queries_are_left_to_the_general_way(tmp_path: Path, text: str, params: list[object]) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, v text)")
        await sql.run("INSERT INTO t VALUES (1, 'one')")
        await both(sql, text, params, is_fast=False)


@on_loop
async def test_rows_by_an_index_are_found_alike(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, u varchar(9) UNIQUE, a integer, b text, c text)")
        await sql.run("CREATE INDEX ON t (a, b DESC)")
        await sql.run(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?)",
            [[number, f"u{number}", number % 7, f"b{number % 3}", None] for number in range(60)],
        )
        for text, params in (
            ("SELECT * FROM t WHERE u = 'u3'", []),
            ("SELECT id FROM t WHERE u = ?", ["u3   "]),
            ("SELECT id FROM t WHERE u = ? AND b = 'b0'", ["u3"]),
            ("SELECT id FROM t WHERE id = 3 AND b = 'b1'", []),
            ("SELECT id, b FROM t WHERE a = 4", []),
            ("SELECT id FROM t WHERE a = 4 AND b = ?", ["b1"]),
            ("SELECT id FROM t WHERE a = 99", []),
        ):
            await both(sql, text, list(params))
        for text in ("SELECT id FROM t WHERE b = 'b1'", "SELECT id FROM t WHERE c = 'x'", "SELECT id FROM t WHERE u = 3"):
            (query,) = parse(text)
            assert isinstance(query, Query)
            assert PointSelects(sql.broker.tables.find).bind(query, []) is None


@on_loop
async def test_many_rows_of_an_index_are_left_to_the_general_way(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
        await sql.run("CREATE INDEX ON t (a)")
        await sql.run("INSERT INTO t VALUES (?, 1)", [[number] for number in range(50)])
        assert len((await both(sql, "SELECT id FROM t WHERE a = 1", [])).rows) == 50


@on_loop
async def test_a_row_of_a_table_that_was_altered_is_not_read_at_once(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a text, b text)")
        await sql.run("INSERT INTO t VALUES (1, 'a', 'b')")
        (query,) = parse("SELECT b FROM t WHERE id = 1")
        assert isinstance(query, Query)
        bound = PointSelects(sql.broker.tables.find).bind(query, [])
        assert bound is not None and bound.one_row_sql is not None
        assert sql.tables.read_one(bound.one_row_sql, bound.values, bound.table) == ("b",)
        await sql.run("ALTER TABLE t DROP COLUMN b")
        assert sql.tables.read_one(bound.one_row_sql, bound.values, bound.table) is None
        await sql.run("ALTER TABLE t RENAME COLUMN a TO b")
        assert sql.tables.read_one(bound.one_row_sql, bound.values, bound.table) is None
        assert (await sql.run("SELECT b FROM t WHERE id = 1")).rows == [("a",)]
