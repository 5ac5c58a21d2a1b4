"""Whatever a query asks for, the server lives, gives nothing away, and says why not."""

import asyncio
import time

import psutil
import pytest

from tailrace.model.errors import OverloadedError, QueryLimitError, SqlError, StoreClosedError, TailraceError
from tailrace.model.limits import MIB, Limits
from tailrace.model.record import Message
from tailrace.sql.select.workers import WorkerPool
from tests.support.aio import on_loop, until
from tests.support.queries import Asker, asking

ENDLESS = "SELECT sum(a.x * b.x) FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(x)"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_parquet('https://example.com/x.parquet')",
        "SELECT * FROM '/etc/passwd'",
        'SELECT * FROM "/etc/passwd"',
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_functions()",
        "SELECT * FROM pragma_database_list()",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM scan_1",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('scan_1')",
        "SELECT * FROM range(10)",
        "SELECT current_setting('memory_limit')",
        "SELECT getenv('HOME')",
        "SELECT getvariable('x')",
        "SELECT pg_sleep(100)",
        "SELECT sleep_ms(100)",
        "SELECT repeat('x', 1000000000)",
        "SELECT range(1000000000)",
        "SELECT lpad('x', 1000000000, 'y')",
        "SELECT printf('%1000000000d', 1)",
        "SELECT list_resize([1], 1000000000)",
        "SELECT nextval('s')",
        "SELECT json_serialize_sql('SELECT 1')",
        "SELECT json_execute_serialized_sql('x')",
        "SELECT (SELECT max(content) FROM read_text('/etc/passwd'))",
        "WITH x AS (SELECT * FROM read_csv('/etc/passwd')) SELECT 1",
        "SELECT CASE WHEN true THEN getenv('HOME') END",
        "SELECT sum(length(getenv('HOME'))) OVER () FROM t",
        "SELECT key FROM t ORDER BY getenv('HOME')",
        "SELECT list_transform([1], x -> getenv('HOME'))",
        "COPY t TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "PRAGMA database_list",
        "SET memory_limit = '100GB'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CALL pragma_version()",
        "EXPORT DATABASE '/tmp/x'",
        "CHECKPOINT",
        "SELECT 1; DROP TABLE t",
        "CREATE TEMP TABLE x AS SELECT 1",
        "SELECT * FROM t INTO OUTFILE '/tmp/x'",
    ],
)
@on_loop
async def test_nothing_beside_its_sources_can_be_reached(text: str) -> None:
    async with asking() as sql:
        await sql.broker.topics.create("t")
        await sql.broker.publisher.publish([Message("t", b"v", key=b"k")])
        with pytest.raises((TailraceError, ValueError)) as refused:
            await sql.rows(text)
        assert "root:" not in str(refused.value)
        assert await sql.column("SELECT value FROM t") == ["v"]


@on_loop
async def test_a_query_that_takes_too_long_is_stopped() -> None:
    async with asking(limits=Limits(query_seconds=1)) as sql:
        started = time.monotonic()
        with pytest.raises(QueryLimitError, match="query_seconds"):
            await sql.rows(ENDLESS)
        assert time.monotonic() - started < 60, "it has a second, and would go on for ever"
        assert await sql.value("SELECT 1") == 1


@on_loop
async def test_a_query_whose_caller_has_gone_is_stopped() -> None:
    async with asking(limits=Limits(query_threads=1)) as sql:
        await sql.value("SELECT 1")
        asked = asyncio.create_task(sql.rows(ENDLESS))
        await until(lambda: bool(sql.queries._running))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        # The one thread is free again, so the query has ended.
        assert await sql.value("SELECT 1") == 1


@on_loop
async def test_memory_beyond_the_limit_is_an_error_and_the_server_lives() -> None:
    async with asking(limits=Limits(query_bytes=32 * MIB)) as sql:
        with pytest.raises(QueryLimitError, match="query_bytes"):
            await sql.rows("SELECT array_agg(x) FROM generate_series(1, 9000000) t(x)")
        with pytest.raises(QueryLimitError, match="query_bytes"):
            await sql.rows("SELECT count(*) FROM (SELECT x, md5(x::text) m FROM generate_series(1, 3000000) t(x) ORDER BY m)")
        assert await sql.value("SELECT 1") == 1


@on_loop
async def test_texts_that_double_and_double_are_stopped() -> None:
    doublings = ", ".join(f"d{n} AS (SELECT s || s || s || s AS s FROM d{n - 1})" for n in range(1, 12))
    async with asking(limits=Limits(query_bytes=16 * MIB)) as sql:
        with pytest.raises(SqlError):
            await sql.rows(
                f"WITH d0 AS (SELECT '0123456789abcdef' || x AS s FROM generate_series(1, 100000) t(x)), {doublings}"
                " SELECT sum(length(s)) FROM d11"
            )
        assert await sql.value("SELECT 1") == 1


@on_loop
async def test_one_call_that_asks_for_gigabytes_is_an_error_and_the_server_does_not_grow() -> None:
    async with asking(limits=Limits(query_bytes=64 * MIB)) as sql:
        await sql.broker.topics.create("t")
        await sql.broker.publisher.publish([Message("t", b"x" * 1_000_000) for _ in range(8)])
        before = psutil.Process().memory_info().rss
        for text in (
            f"SELECT sum(length(replace(value, 'x', '{'y' * 2000}'))) FROM t",
            f"SELECT sum(length(regexp_replace(value, 'x', '{'y' * 2000}', 'g'))) FROM t",
        ):
            with pytest.raises(SqlError):
                await sql.rows(text)
        assert psutil.Process().memory_info().rss - before < 200 * MIB
        assert await sql.value("SELECT count(*) FROM t") == 8


@on_loop
async def test_a_worker_that_dies_fails_its_query_only() -> None:
    async with asking() as sql:
        await sql.value("SELECT 1")
        asked = asyncio.create_task(sql.rows(ENDLESS))
        await until(lambda: any(execution._worker is not None for execution in sql.queries._running))
        (execution,) = sql.queries._running
        worker = execution._worker
        assert worker is not None
        worker._process.kill()
        with pytest.raises(QueryLimitError, match=r"ended \(SIGKILL\)"):
            await asked
        assert await sql.value("SELECT 1") == 1


def test_a_worker_ends_when_the_server_has_gone() -> None:
    pool = WorkerPool(Limits())
    worker = pool.take()
    worker.wait()
    worker._channel.close()
    assert worker._process.wait(30) == 0
    worker.close()
    pool.close()


@on_loop
async def test_an_answer_that_is_too_large_is_refused() -> None:
    async with asking(limits=Limits(query_bytes=16 * MIB)) as sql:
        await sql.broker.topics.create("t")
        await sql.broker.publisher.publish([Message("t", b"x" * 1_000_000) for _ in range(20)])
        with pytest.raises(QueryLimitError, match="query_bytes"):
            await sql.rows("SELECT value FROM t")
        assert await sql.value("SELECT sum(length(value)) FROM t") == 20_000_000


@on_loop
async def test_only_so_many_queries_wait() -> None:
    async with asking(limits=Limits(query_threads=1, queued_queries=1)) as sql:
        await sql.value("SELECT 1")
        endless = [asyncio.create_task(sql.rows(ENDLESS))]
        await until(lambda: len(sql.queries._running) == 1)
        endless.append(asyncio.create_task(sql.rows(ENDLESS)))
        await until(lambda: len(sql.queries._running) == 2)
        assert await sql.value("SELECT 1") == 1, "a short query does not wait for two endless ones"
        await until(lambda: sql.queries._scheduler.waiting == 1)
        with pytest.raises(OverloadedError, match="queued_queries"):
            await sql.value("SELECT 1")
        for task in endless:
            task.cancel()
        await until(lambda: not sql.queries._running and sql.queries._scheduler.waiting == 0)
        assert await sql.value("SELECT 1") == 1


@on_loop
async def test_closing_stops_what_runs() -> None:
    async with asking() as sql:
        await sql.value("SELECT 1")
        asked = asyncio.create_task(sql.rows(ENDLESS))
        await until(lambda: bool(sql.queries._running))
        sql.queries.close()
        with pytest.raises(StoreClosedError):
            await asked
        with pytest.raises(StoreClosedError):
            await sql.value("SELECT 1")


@on_loop
async def test_a_topic_that_goes_meanwhile_is_an_error() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("t")
        await sql.broker.publisher.publish([Message("t", b"v")])
        await sql.value("SELECT 1")
        execution = await _prepared(sql, "SELECT * FROM t")
        await sql.broker.topics.delete("t")
        with pytest.raises(TailraceError, match="there is no"):
            await asyncio.to_thread(execution.run, lambda: None)
        with pytest.raises(TailraceError, match="'t'"):
            await sql.rows("SELECT * FROM t")


async def _prepared(sql: Asker, text: str):  # type: ignore[no-untyped-def]
    from tailrace.sql.parse import parse

    sources = sql.queries._sources
    assert sources is not None
    return sources.prepare(parse(text)[0], (), sql.broker.answers.answer())  # type: ignore[arg-type]
