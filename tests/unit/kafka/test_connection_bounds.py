"""What connections may take, of memory, requests and time, and what becomes of those that want more."""

import asyncio
import logging

import pytest

from tests.support.aio import on_loop, until
from tests.support.connections import BEAT, SIZE, lists, sends, served


@on_loop
async def test_only_so_many_requests_of_a_connection_are_taken_at_a_time() -> None:
    async with served(pipelined_requests=3) as server:
        side = await server.connect()
        await side.send(sends(10))
        for answered in range(10):
            expected = min(10, answered + 3)
            await until(lambda: len(server.handlers.waiting) == expected)  # noqa: B023
            await asyncio.sleep(0.005)
            assert len(server.handlers.waiting) == expected
            server.handlers.waiting[answered].set_result(None)
            assert await side.correlation_id() == answered


@on_loop
async def test_only_so_many_bytes_of_all_connections_are_held() -> None:
    async with served(held_request_bytes=500_000) as server:
        sides = [await server.connect() for _ in range(5)]
        for side in sides:
            await side.send(sends(1, records=200_000))
        await until(lambda: len(server.handlers.waiting) == 2)
        await asyncio.sleep(0.02)
        assert len(server.handlers.waiting) == 2
        assert server.traffic.held_bytes <= 500_000
        for served_so_far in range(5):
            await until(lambda: len(server.handlers.waiting) > served_so_far)  # noqa: B023
            server.handlers.waiting[served_so_far].set_result(None)
        for side in sides:
            assert await side.correlation_id() == 0


@on_loop
async def test_small_requests_are_taken_while_much_is_held_but_only_a_few_of_each_connection() -> None:
    async with served(held_request_bytes=100_000, pipelined_requests=64) as server:
        large, small = await server.connect(), await server.connect()
        await large.send(sends(1, records=95_000))
        await until(lambda: len(server.handlers.waiting) == 1)
        await small.send(sends(30, records=10_000))
        await until(lambda: len(server.handlers.waiting) == 1 + 8)
        await asyncio.sleep(0.02)
        assert len(server.handlers.waiting) == 1 + 8
        server.handlers.waiting[0].set_result(None)
        for answered in range(30):
            await until(lambda: len(server.handlers.waiting) > 1 + answered)  # noqa: B023
            server.handlers.waiting[1 + answered].set_result(None)
            assert await small.correlation_id() == answered


@on_loop
async def test_memory_is_given_to_bytes_that_came_not_to_those_that_were_announced() -> None:
    async with served() as server:
        sides = [await server.connect() for _ in range(20)]
        for side in sides:
            await side.send(SIZE.pack(16_000_000) + bytes(100))
        await until(lambda: server.traffic.bytes_in == 20 * 104)
        assert server.traffic.held_bytes < 20 * 100_000


@on_loop
async def test_small_requests_pass_while_large_ones_hold_all_the_memory_there_is() -> None:
    async with served(held_request_bytes=500_000) as server:
        large, small = await server.connect(), await server.connect()
        await large.send(sends(1, records=499_000))
        await until(lambda: len(server.handlers.waiting) == 1)
        await small.send(BEAT)
        assert await small.correlation_id() == 7
        server.handlers.waiting[0].set_result(None)


@on_loop
async def test_half_requests_are_given_up_sooner_when_memory_is_short() -> None:
    async with served(held_request_bytes=100_000, request_seconds=600) as server:
        side = await server.connect()
        await side.send(SIZE.pack(90_000) + bytes(60_000))
        await until(lambda: server.traffic.held_bytes == 90_000)
        (connection,) = server.listener._connections
        now = asyncio.get_running_loop().time()
        connection.inspect(now + 4)
        assert server.traffic.closed == {}
        connection.inspect(now + 6)
        assert server.traffic.closed == {"half_frame": 1}


@on_loop
async def test_a_half_request_is_given_up_after_a_while() -> None:
    async with served(request_seconds=1) as server:
        side = await server.connect()
        await side.send(SIZE.pack(1000) + bytes(10))
        assert await side.is_closed()
        assert server.traffic.closed == {"half_frame": 1}


@on_loop
@pytest.mark.parametrize("begin", [b"", b"\0\0"])
async def test_a_connection_that_never_begins_with_a_request_is_closed_after_a_while(begin: bytes) -> None:
    async with served(request_seconds=100) as server:
        side, good = await server.connect(), await server.connect()
        await side.send(begin)
        await good.send(BEAT)
        assert await good.correlation_id() == 7
        await until(lambda: server.traffic.bytes_in == len(begin) + len(BEAT))
        now = asyncio.get_running_loop().time()
        for after, closed in ((90, {}), (110, {"no_request": 1})):
            for connection in tuple(server.listener._connections):
                connection.inspect(now + after)
            assert server.traffic.closed == closed
        assert await side.is_closed()
        await good.send(BEAT)
        assert await good.correlation_id() == 7


@on_loop
async def test_an_address_that_connects_again_and_again_is_turned_away() -> None:
    async with served(connections_per_address=5, new_connections_per_second=1) as server:
        served_first = 0
        while not server.traffic.closed:
            side = await server.connect()
            await side.send(BEAT)
            served_first += not await side.is_closed()
            side.writer.close()
            await until(lambda: server.traffic.open == 0)
        assert served_first >= 5
        assert server.traffic.closed == {"new_connections_per_second": 1}


@on_loop
async def test_a_silent_connection_is_closed_after_a_while() -> None:
    async with served(idle_connection_seconds=1) as server:
        side = await server.connect()
        assert await side.is_closed()
        assert server.traffic.closed == {"idle": 1}


@on_loop
async def test_a_client_that_does_not_take_its_answers_gets_no_more_and_is_closed() -> None:
    async with served(unsent_bytes=100_000, unsent_seconds=1) as server:
        server.handlers.answer_bytes = 1_000_000
        server.handlers.gate.set()
        side = await server.connect()
        side.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await side.send(lists(200))
        await until(lambda: server.traffic.closed == {"slow_reader": 1})
        # What the kernel's buffers took, and one answer more.
        assert server.traffic.bytes_out < 20_000_000


@on_loop
async def test_more_connections_than_allowed_are_closed_at_once() -> None:
    async with served(connections=3) as server:
        held = [await server.connect() for _ in range(3)]
        await until(lambda: server.traffic.open == 3)
        late = await server.connect()
        assert await late.is_closed()
        assert server.traffic.closed == {"connections": 1}
        held[0].writer.close()
        await until(lambda: server.traffic.open == 2)
        again = await server.connect()
        await again.send(BEAT)
        assert await again.correlation_id() == 7


@on_loop
async def test_one_address_can_not_take_all_connections() -> None:
    async with served(connections_per_address=2) as server:
        held = [await server.connect() for _ in range(2)]
        await until(lambda: server.traffic.open == 2)
        late = await server.connect()
        assert await late.is_closed()
        assert server.traffic.closed == {"connections_per_address": 1}
        await held[0].send(BEAT)
        assert await held[0].correlation_id() == 7


@on_loop
async def test_log_lines_about_bad_clients_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:
        with caplog.at_level(logging.WARNING):
            for _ in range(60):
                side = await server.connect()
                await side.send(SIZE.pack(-1))
                assert await side.is_closed()
        assert server.traffic.closed["frame_size"] == 60
        assert len(caplog.records) < 60
