"""Writes with queries in them: what they read, what they log, and what happens when many come at once."""

import asyncio
import json
from typing import Any

import pytest

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql
from tests.support.tables import records_of

CREATE = "CREATE TABLE t (id bigint PRIMARY KEY, n integer, v text)"


async def events(sql: SqlClient, table: str) -> list[dict[str, Any]]:
    values = [json.loads(record.value or b"") for record in await records_of(sql.broker, table)]
    return [{name: value[name] for name in ("op", "old", "new")} for value in values]


@on_loop
async def test_each_row_that_a_join_changes_is_one_event_with_both_images() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        await sql.run("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')")
        # Two rows of FROM join with the row of id 1, and one of them counts.
        changed = await sql.run("UPDATE t SET n = x.n FROM (VALUES (1, 11), (1, 11), (2, 22)) AS x (id, n) WHERE t.id = x.id")
        deleted = await sql.run("DELETE FROM t USING t AS o WHERE t.n > o.n AND o.id = 2")
        assert (changed.affected, deleted.affected) == (2, 1)
        found = (await events(sql, "t"))[3:]
        assert sorted(found[:2], key=lambda event: event["old"]["id"]) == [
            {"op": "update", "old": {"id": 1, "n": 10, "v": "a"}, "new": {"id": 1, "n": 11, "v": "a"}},
            {"op": "update", "old": {"id": 2, "n": 20, "v": "b"}, "new": {"id": 2, "n": 22, "v": "b"}},
        ]
        assert found[2:] == [{"op": "delete", "old": {"id": 3, "n": 30, "v": "c"}, "new": None}]


@on_loop
async def test_forty_clients_that_insert_the_next_number_get_forty_numbers() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        insert = "INSERT INTO t (id) SELECT coalesce(max(id), 0) + 1 FROM t WHERE id > 0 RETURNING id"
        others = [sql.run("INSERT INTO t (id) VALUES (?)", [-number]) for number in range(1, 41)]
        found, _ = await asyncio.gather(asyncio.gather(*(sql.rows(insert) for _ in range(40))), asyncio.gather(*others))
        assert {row for rows in found for row in rows} == {(number,) for number in range(1, 41)}
        assert len(await events(sql, "t")) == 80


@on_loop
async def test_queries_of_a_transaction_see_what_it_has_written_and_nobody_else_does() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        *_, select, _ = await sql.engine.execute(
            "BEGIN; INSERT INTO t (id) VALUES (1);"
            "INSERT INTO t (id, n) SELECT id + 1, (SELECT count(*) FROM t) FROM t;"
            "UPDATE t SET v = (SELECT string_agg(id::text, ',' ORDER BY id) FROM t) WHERE n IS NOT NULL;"
            "SELECT id, n, v FROM t ORDER BY id; COMMIT"
        )
        assert list(map(tuple, select.rows)) == [(1, None, None), (2, 1, "1,2")]
        with pytest.raises(SqlError, match="missing"):
            await sql.engine.execute("BEGIN; DELETE FROM t; INSERT INTO t (id) SELECT 1 FROM t, missing.x; COMMIT")
        assert await sql.rows("SELECT count(*) FROM t") == [(2,)]


@on_loop
async def test_an_insert_reads_topics_and_views_and_other_writes_read_no_topic() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        await sql.run("CREATE TOPIC o.q")
        await sql.run("""INSERT INTO o.q (key, value) VALUES ('a', '{"id": 7}'), ('b', '{"id": 8}')""")
        text = (
            "INSERT INTO t (id, v) SELECT (value ->> 'id')::bigint, key FROM o.q"
            " ON CONFLICT (id) DO UPDATE SET n = t.id RETURNING v, n"
        )
        assert sorted(await sql.rows(text), key=str) == [("a", None), ("b", None)]
        assert sorted(await sql.rows(text), key=str) == [("a", 7), ("b", 8)]
        await sql.run("""INSERT INTO o.q (key, value) VALUES ('c', '{"id": 9}')""")
        assert sorted(await sql.rows(text), key=str) == [("a", 7), ("b", 8), ("c", None)]
        await sql.run("DELETE FROM t WHERE id = 9")
        await sql.run("CREATE VIEW late AS SELECT id, n FROM t WHERE id > 7")
        assert await sql.rows("UPDATE t SET n = late.n + 1 FROM late WHERE late.id = t.id RETURNING t.id, t.n") == [(8, 9)]
        for refused in ("UPDATE t SET n = 1 FROM o.q", "DELETE FROM t WHERE v IN (SELECT key FROM o.q)"):
            with pytest.raises(UnsupportedSqlError, match="can only read tables"):
                await sql.run(refused)


@on_loop
async def test_a_write_that_fails_in_its_query_changes_nothing() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        await sql.run("INSERT INTO t VALUES (1, 1, 'a'), (2, 0, 'b')")
        for text, sqlstate in (
            ("UPDATE t SET v = 'x' WHERE (SELECT 1 / t.n) = 1", "22012"),
            ("UPDATE t SET n = (SELECT id FROM t)", "21000"),
            ("INSERT INTO t (id, n) SELECT id + 5, id * 1000000000000 FROM t", "22003"),
            ("INSERT INTO t (id) SELECT id FROM t", "23505"),
        ):
            with pytest.raises(Exception) as failed:
                await sql.run(text)
            assert getattr(failed.value, "sqlstate", None) == sqlstate, text
        assert await sql.rows("SELECT * FROM t ORDER BY id") == [(1, 1, "a"), (2, 0, "b")]
        assert len(await events(sql, "t")) == 2


@on_loop
async def test_the_rows_of_a_query_are_bounded_by_a_commit() -> None:
    async with running_sql(limits=Limits(frame_bytes=2 << 20, request_bytes=1 << 20)) as sql:
        await sql.run(CREATE)
        with pytest.raises(Exception, match="frame_bytes"):
            await sql.run("INSERT INTO t (id) SELECT g FROM generate_series(1, 200000) AS g")
        assert await sql.rows("SELECT count(*) FROM t") == [(0,)]
