"""Texts that are parsed once, and long ones that are parsed in another process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.model.errors import LimitExceededError, OverloadedError, QueryLimitError, SqlError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.parse import bind, parse
from tailrace.sql.statement_cache import ParserProcess, StatementCache
from tailrace.sql.statements import ConsumeStatement, Write
from tests.support.aio import on_loop

LONG = ", ".join(str(number) for number in range(5_000))


@asynccontextmanager
async def texts(limits: Limits | None = None) -> AsyncIterator[StatementCache]:
    limits = limits or Limits()
    long_texts = ParserProcess(limits)
    try:
        yield StatementCache(limits, long_texts)
    finally:
        await long_texts.close()


@on_loop
async def test_the_same_text_is_parsed_once() -> None:
    async with texts() as parsed:
        assert await parsed.parse("SELECT 1") is await parsed.parse("SELECT 1")


@on_loop
async def test_the_oldest_texts_are_forgotten() -> None:
    async with texts(Limits(parsed_texts=2)) as parsed:
        first, second = await parsed.parse("SELECT 1"), await parsed.parse("SELECT 2")
        assert await parsed.parse("SELECT 1") is first
        await parsed.parse("SELECT 3")
        assert await parsed.parse("SELECT 1") is first
        assert await parsed.parse("SELECT 2") is not second


@on_loop
async def test_long_texts_are_not_kept() -> None:
    async with texts() as parsed:
        long = "SELECT 1 -- " + "x" * 5000
        assert await parsed.parse(long) is not await parsed.parse(long)


@on_loop
async def test_many_statements_mean_the_same_as_in_place() -> None:
    text = ";\n".join(
        [
            *(f"SELECT id, v FROM app.t WHERE id = {number}" for number in range(40)),
            "BEGIN; UPDATE app.t SET v = 'x' WHERE id = 1; COMMIT",
            "CREATE TABLE app.more (id bigint PRIMARY KEY)",
            "ALTER TOPIC app.o ADD SOURCE app.t ON INSERT WHERE v = 'public'",
        ]
    )
    async with texts() as parsed:
        assert await parsed.parse(text) == parse(text)


@on_loop
async def test_a_statement_of_our_own_gets_its_values_later() -> None:
    text = "SELECT 1;\n" * 200 + "  CONSUME FROM app.o LIMIT :most"
    async with texts() as parsed:
        last = (await parsed.parse(text))[-1]
        written = "CONSUME FROM app.o LIMIT :most"
        assert bind(last, {"most": 7}) == ConsumeStatement(text=written, line=201, column=3, topic="app.o", limit=7)
        with pytest.raises(SqlError, match="line 201, column 28"):
            bind(last, {"most": "many"})


@on_loop
async def test_long_writes_are_parsed_as_short_ones_are() -> None:
    async with texts() as parsed:
        for text in (f"UPDATE app.t SET v = :v WHERE id IN ({LONG})", f"INSERT INTO app.t VALUES (?, 'x', ({LONG}))"):
            assert await parsed.parse(text) == parse(text)


@on_loop
async def test_a_long_insert_of_plain_values_comes_as_rows() -> None:
    values = ", ".join(f"({number}, 'x')" for number in range(1_000))
    async with texts() as parsed:
        insert, _ = await parsed.parse(f"INSERT INTO app.t (id, v) VALUES {values}; SELECT 1")
        assert isinstance(insert, Write)
        assert insert.rows == [(number, "x") for number in range(1_000)]


@on_loop
async def test_long_queries_are_parsed_as_short_ones_are() -> None:
    async with texts() as parsed:
        for text in (f"SELECT v FROM app.t WHERE id IN ({LONG})", f'SELECT value FROM app.o WHERE "offset" IN ({LONG})'):
            (statement,) = await parsed.parse(text)
            assert [statement] == parse(text)


@on_loop
async def test_queries_of_too_many_parts_are_refused() -> None:
    async with texts(Limits(query_nodes=100)) as parsed:
        with pytest.raises(LimitExceededError, match="query_nodes"):
            await parsed.parse(f"SELECT 1 IN ({LONG})")


@on_loop
async def test_a_text_that_crashes_the_parser_is_an_error_of_its_own() -> None:
    async with texts(Limits(statement_bytes=10_000_000)) as parsed:
        with pytest.raises(SqlError):
            await parsed.parse("SELECT 1" + "+1" * 400_000)
        assert await parsed.parse("SELECT 1 + 1") == parse("SELECT 1 + 1")
        text = f"SELECT v FROM app.t WHERE id IN ({LONG})"
        assert await parsed.parse(text) == parse(text)


@on_loop
async def test_errors_say_where_they_are() -> None:
    async with texts() as parsed:
        with pytest.raises(UnsupportedSqlError, match="line 201, column 1: SELCT") as raised:
            await parsed.parse("SELECT 1;\n" * 200 + "SELCT 2")
        assert raised.value.line == 201


@on_loop
async def test_a_text_that_takes_too_long_is_given_up_and_the_next_is_parsed() -> None:
    async with texts(Limits(parse_seconds=0)) as parsed:
        with pytest.raises(QueryLimitError, match="parse_seconds"):
            await parsed.parse(f"SELECT id FROM app.t WHERE id IN ({LONG})")
    async with texts() as parsed:
        task = asyncio.ensure_future(parsed.parse(f"SELECT id FROM app.t WHERE id IN ({LONG})"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await parsed.parse("SELECT 1;" * 200)) == 200


@on_loop
async def test_as_many_texts_wait_as_the_limit_allows() -> None:
    async with texts(Limits(queued_texts=1)) as parsed:
        first = asyncio.ensure_future(parsed.parse("SELECT 1;" * 200))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="queued_texts"):
            await parsed.parse("SELECT 2;" * 200)
        assert len(await first) == 200
