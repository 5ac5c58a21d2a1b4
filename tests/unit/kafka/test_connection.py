"""Connections over real sockets: framing, the order of responses, errors, lost clients, stopping, and all bounds."""

import asyncio
import gc
import json
import logging
import socket
import weakref

import pytest

from tailrace.kafka.connection import KafkaConnection, SharedContext
from tailrace.kafka.dispatch import ApiRoute, Dispatcher, RequestContext
from tailrace.kafka.listener import ConnectionRegistry
from tailrace.kafka.metrics import Traffic
from tailrace.model.errors import OverloadedError
from tailrace.model.limits import KIB, Limits
from tailrace.wire.messages.groups import (
    DELETE_GROUPS_API,
    HEARTBEAT_API,
    DeleteGroupsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
)
from tailrace.wire.messages.produce import PRODUCE_API, ProduceRequest
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
        silent = sized(frame(PRODUCE_API, 9, ProduceRequest(acks=0), 99))
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


@on_loop
async def test_an_http_request_is_answered_in_http_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(b"GET / HTTP/1.1\r\n\r\n")
        answer = await side.reader.read()
        assert server.traffic.closed == {"wrong_protocol": 1}
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"content-length: {len(body)}".encode() in head
    assert "this is the Kafka listener; use the HTTP address" in json.loads(body)["detail"]
    assert "sent an HTTP request to the Kafka listener" in caplog.text


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "wrong_protocol", "sent a TLS handshake"),
        (SIZE.pack(2**31 - 1), "frame_size", "request of 2147483647 bytes"),
        (SIZE.pack(-1), "frame_size", "request of -1 bytes"),
        (SIZE.pack(0), "frame_size", "request of 0 bytes"),
        (SIZE.pack(8) + bytes(8), "bad_request", "no complete header"),
        (SIZE.pack(20) + b"\xff" * 20, "bad_request", "API key -1"),
        (BEAT[:5] + b"\x0c\x00\x63" + BEAT[8:], "bad_request", "Heartbeat is not supported in version 99"),
        (SIZE.pack(10) + BEAT[4:12] + b"\x00\xff", "bad_request", "client id"),
        (SIZE.pack(15) + BEAT[4:18] + b"\x00", "bad_request", "can't be read"),
    ],
    ids=["TLS", "huge", "negative", "empty", "zeros", "garbage", "version", "client id", "torn"],
)
@on_loop
async def test_an_invalid_request_closes_its_connection_and_no_other(
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
async def test_a_failed_request_gets_an_error_code_or_closes_the_connection() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(sized(frame(DELETE_GROUPS_API, 2, DeleteGroupsRequest(groups_names=("g",)))))
        assert await side.is_closed()
        assert server.traffic.closed == {"bad_request": 1}
        assert server.traffic.handler_faults == 0
        side = await server.connect()
        await side.send(sized(frame(DELETE_GROUPS_API, 2, DeleteGroupsRequest())))
        assert await side.is_closed()
        assert server.traffic.handler_faults == 1


def test_a_failing_handler_is_answered_with_the_code_of_its_error() -> None:
    def fail(call: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        raise OverloadedError("not now") if request.group_id else ZeroDivisionError("a defect")

    traffic = Traffic()
    dispatcher = Dispatcher([ApiRoute(HEARTBEAT_API, fail)], traffic, Limits())
    for group, code in (("g", OverloadedError.kafka_code), ("", -1)):
        reply = dispatcher.dispatch(frame(HEARTBEAT_API, 4, HeartbeatRequest(group_id=group)), None)  # type: ignore[arg-type]
        assert isinstance(reply, tuple)
        assert read_response(HEARTBEAT_API, 4, b"".join(reply)[4:])[1].error_code == code
    assert traffic.handler_faults == 1


@on_loop
async def test_waiting_requests_of_a_lost_client_are_cancelled() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(lists(1))
        await until(lambda: server.traffic.requests["ListGroups"] == 1)
        side.writer.transport.abort()
        await until(lambda: server.handlers.cancelled == 1)


@on_loop
async def test_a_request_that_is_cancelled_internally_closes_the_connection() -> None:
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


@on_loop
async def test_the_requests_in_flight_of_a_connection_are_bounded() -> None:
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
async def test_the_request_bytes_of_all_connections_are_bounded() -> None:
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
async def test_a_few_small_requests_of_each_connection_are_taken_while_memory_is_short() -> None:
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
async def test_memory_is_held_for_received_bytes_not_for_announced_ones() -> None:
    async with served() as server:
        sides = [await server.connect() for _ in range(20)]
        for side in sides:
            await side.send(SIZE.pack(16_000_000) + bytes(100))
        await until(lambda: server.traffic.bytes_in == 20 * 104)
        assert server.traffic.held_bytes < 20 * 100_000


@on_loop
async def test_small_requests_pass_while_large_ones_hold_all_memory() -> None:
    async with served(held_request_bytes=500_000) as server:
        large, small = await server.connect(), await server.connect()
        await large.send(sends(1, records=499_000))
        await until(lambda: len(server.handlers.waiting) == 1)
        await small.send(BEAT)
        assert await small.correlation_id() == 7
        server.handlers.waiting[0].set_result(None)


@on_loop
async def test_partial_requests_time_out_sooner_when_memory_is_short() -> None:
    async with served(held_request_bytes=100_000, request_seconds=600) as server:
        side = await server.connect()
        await side.send(SIZE.pack(90_000) + bytes(60_000))
        await until(lambda: server.traffic.held_bytes == 90_000)
        now = asyncio.get_running_loop().time()
        server.listener.registry.inspect(now + 4)
        assert server.traffic.closed == {}
        server.listener.registry.inspect(now + 6)
        assert server.traffic.closed == {"half_frame": 1}


@on_loop
async def test_a_partial_request_times_out() -> None:
    async with served(request_seconds=1) as server:
        side = await server.connect()
        await side.send(SIZE.pack(1000) + bytes(10))
        assert await side.is_closed()
        assert server.traffic.closed == {"half_frame": 1}


@on_loop
@pytest.mark.parametrize("begin", [b"", b"\0\0"])
async def test_a_connection_without_a_request_is_closed_after_a_while(begin: bytes) -> None:
    async with served(request_seconds=100) as server:
        side, good = await server.connect(), await server.connect()
        await side.send(begin)
        await good.send(BEAT)
        assert await good.correlation_id() == 7
        await until(lambda: server.traffic.bytes_in == len(begin) + len(BEAT))
        now = asyncio.get_running_loop().time()
        for after, closed in ((90, {}), (110, {"no_request": 1})):
            server.listener.registry.inspect(now + after)
            assert server.traffic.closed == closed
        assert await side.is_closed()
        await good.send(BEAT)
        assert await good.correlation_id() == 7


@on_loop
async def test_an_address_that_connects_too_often_is_rejected() -> None:
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
async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with served(idle_connection_seconds=1) as server:
        side = await server.connect()
        assert await side.is_closed()
        assert server.traffic.closed == {"idle": 1}


@on_loop
async def test_a_client_that_does_not_read_its_responses_is_closed() -> None:
    async with served(unsent_bytes=100_000, unsent_seconds=1) as server:
        server.handlers.answer_bytes = 1_000_000
        server.handlers.gate.set()
        side = await server.connect()
        side.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await side.send(lists(200))
        await until(lambda: server.traffic.closed == {"slow_reader": 1})
        # As many as the buffers of the kernel hold, and one more.
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


@on_loop
async def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    async with served() as server:
        side = await server.connect()
        await side.send(BEAT)
        assert await side.correlation_id() == 7
        (connection,) = server.listener.registry.connections
        freed = weakref.ref(connection)
        del connection
        gc.disable()
        try:
            side.writer.close()
            await until(lambda: freed() is None)
        finally:
            gc.enable()


class Transport(asyncio.Transport):
    """The transport of a client at some address."""

    def __init__(self, host: str, connected: socket.socket) -> None:
        super().__init__({"peername": (host, 50_000), "socket": connected})

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.mark.parametrize(("host", "is_near"), [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False)])
@on_loop
async def test_the_send_buffer_is_small_for_clients_on_the_same_machine_only(host: str, is_near: bool) -> None:
    limits, traffic = Limits(), Traffic()
    shared = SharedContext(
        Dispatcher((), traffic, limits), limits, traffic, memoryview(b""), ConnectionRegistry(traffic, limits)
    )
    connected, other = socket.socketpair()
    with connected, other:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        before = connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        connection = KafkaConnection(shared, 1)
        connection.connection_made(Transport(host, connected))
        assert (connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) != before) is is_near
        connection.connection_lost(None)
