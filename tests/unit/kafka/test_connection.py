"""Connections over real sockets: framing, the order of answers, requests that fail, clients that go, stopping."""

import asyncio
import logging

import pytest

from tailrace.kafka.dispatch import Call, Dispatcher, Route
from tailrace.kafka.traffic import Traffic
from tailrace.model.errors import OverloadedError
from tailrace.model.limits import Limits
from tailrace.wire.messages import delete_groups, heartbeat, produce
from tailrace.wire.messages.delete_groups import DeleteGroupsRequest
from tailrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.wire.messages.produce import ProduceRequest
from tests.support.aio import on_loop, until
from tests.support.connections import BEAT, SIZE, beats, lists, sends, served
from tests.support.kafka import frame, read_response, sized
from tests.support.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
@on_loop
async def test_requests_are_answered_in_order_however_the_bytes_arrive(piece: int) -> None:
    async with served() as server:
        side = await server.connect()
        data = beats(20)
        for at in range(0, len(data), piece):
            await side.send(data[at : at + piece])
            if piece < 10:
                await asyncio.sleep(0)
        assert [await side.correlation_id() for _ in range(20)] == list(range(20))


@on_loop
async def test_a_request_larger_than_the_scratch_buffer_arrives_whole() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sends(3, records=300_000))
        await until(lambda: len(server.handlers.waiting) == 3)
        for done in server.handlers.waiting:
            done.set_result(None)
        assert [await side.correlation_id() for _ in range(3)] == [0, 1, 2]


@on_loop
async def test_produces_overlap_and_are_answered_in_their_order() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sends(4))
        await until(lambda: len(server.handlers.waiting) == 4)
        for done in reversed(server.handlers.waiting):
            done.set_result(None)
        assert [await side.correlation_id() for _ in range(4)] == [0, 1, 2, 3]


@on_loop
async def test_other_requests_wait_until_those_before_them_are_answered() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sends(1) + beats(1))
        await until(lambda: len(server.handlers.waiting) == 1)
        await asyncio.sleep(0.01)
        assert server.handlers.beats == 0
        server.handlers.waiting[0].set_result(None)
        await side.receive()
        await side.receive()
        assert server.handlers.beats == 1
        await side.send(lists(1) + sends(1))
        await asyncio.sleep(0.01)
        assert len(server.handlers.waiting) == 1
        server.handlers.gate.set()
        await until(lambda: len(server.handlers.waiting) == 2)


@on_loop
async def test_a_produce_without_acknowledgement_leaves_no_gap_in_the_answers() -> None:
    async with served() as server:
        side = await server.connect()
        silent = sized(frame(produce.API, 9, ProduceRequest(acks=0), 99))
        await side.send(silent + sends(1))
        await until(lambda: len(server.handlers.waiting) == 2)
        for done in server.handlers.waiting:
            done.set_result(None)
        assert await side.correlation_id() == 0


@on_loop
async def test_a_request_of_many_megabytes_arrives_whole() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sends(2, records=7_000_000))
        await until(lambda: len(server.handlers.waiting) == 2)
        assert server.traffic.held_bytes > 14_000_000
        for done in server.handlers.waiting:
            done.set_result(None)
        assert [await side.correlation_id() for _ in range(2)] == [0, 1]


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "wrong_protocol", "speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "wrong_protocol", "speaks TLS"),
        (SIZE.pack(2**31 - 1), "frame_size", "request of 2147483647 bytes"),
        (SIZE.pack(-1), "frame_size", "request of -1 bytes"),
        (SIZE.pack(0), "frame_size", "request of 0 bytes"),
        (SIZE.pack(8) + bytes(8), "bad_request", "no whole header"),
        (SIZE.pack(20) + b"\xff" * 20, "bad_request", "API key -1"),
        (BEAT[:5] + b"\x0c\x00\x63" + BEAT[8:], "bad_request", "Heartbeat is not spoken in version 99"),
        (SIZE.pack(10) + BEAT[4:12] + b"\x00\xff", "bad_request", "client id"),
        (SIZE.pack(15) + BEAT[4:18] + b"\x00", "bad_request", "can't be read"),
    ],
    ids=["HTTP", "TLS", "huge", "negative", "empty", "zeros", "garbage", "version", "client id", "torn"],
)
@on_loop
async def test_what_is_no_request_closes_the_connection_and_no_other(
    data: bytes, reason: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as server:
        with caplog.at_level(logging.WARNING):
            good, bad = await server.connect(), await server.connect()
            await bad.send(data)
            assert await bad.is_closed()
        assert server.traffic.closed == {reason: 1}
        assert words in caplog.text
        await good.send(BEAT)
        assert await good.correlation_id() == 7


@on_loop
async def test_a_request_that_fails_says_so_where_its_answer_can_and_closes_the_connection_where_not() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sized(frame(delete_groups.API, 2, DeleteGroupsRequest(groups_names=("g",)))))
        assert await side.is_closed()
        assert server.traffic.closed == {"bad_request": 1}
        assert server.traffic.handler_faults == 0
        side = await server.connect()
        await side.send(sized(frame(delete_groups.API, 2, DeleteGroupsRequest())))
        assert await side.is_closed()
        assert server.traffic.handler_faults == 1


def test_a_failing_handler_is_answered_with_the_code_of_its_error() -> None:
    def fail(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        raise OverloadedError("not now") if request.group_id else ZeroDivisionError("a defect")

    traffic = Traffic()
    dispatcher = Dispatcher([Route(heartbeat.API, fail)], traffic, Limits())
    for group, code in (("g", OverloadedError.kafka_code), ("", -1)):
        reply = dispatcher.dispatch(frame(heartbeat.API, 4, HeartbeatRequest(group_id=group)), None)  # type: ignore[arg-type]
        assert isinstance(reply, tuple)
        assert read_response(heartbeat.API, 4, b"".join(reply)[4:])[1].error_code == code
    assert traffic.handler_faults == 1


@on_loop
async def test_what_waits_for_a_lost_client_is_given_up() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(lists(1))
        await until(lambda: server.traffic.requests["ListGroups"] == 1)
        side.writer.transport.abort()
        await until(lambda: server.handlers.cancelled == 1)


@on_loop
async def test_a_request_that_is_given_up_inside_closes_the_connection_instead_of_leaving_it_without_an_answer() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sends(1))
        await until(lambda: len(server.handlers.waiting) == 1)
        server.handlers.waiting[0].cancel()
        assert await side.is_closed()
        assert server.traffic.closed == {"fault": 1}


@on_loop
async def test_a_produce_of_a_lost_client_goes_on() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sends(1))
        await until(lambda: len(server.handlers.waiting) == 1)
        side.writer.transport.abort()
        await until(lambda: server.traffic.open == 0)
        assert not server.handlers.waiting[0].cancelled()
        server.handlers.waiting[0].set_result(None)


@on_loop
async def test_a_stop_answers_what_is_in_flight_and_closes_the_rest() -> None:
    async with served(stop_seconds=PATIENCE_SECONDS) as server:
        idle, busy = await server.connect(), await server.connect()
        await busy.send(lists(1))
        await until(lambda: server.traffic.requests["ListGroups"] == 1)
        stopping = asyncio.ensure_future(server.listener.stop())
        assert await idle.is_closed()
        server.handlers.gate.set()
        assert await busy.correlation_id() == 0
        await stopping
        assert await busy.is_closed()


@on_loop
async def test_a_stop_does_not_wait_for_ever() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(lists(1))
        await until(lambda: server.traffic.requests["ListGroups"] == 1)
        await server.listener.stop()
        assert await side.is_closed()
