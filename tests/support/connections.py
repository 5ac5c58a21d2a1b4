"""Connections over real sockets to a Kafka listener whose handlers are controlled by the test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import Struct

from tailrace.kafka.dispatch import ApiRoute, DeferredResponse, Dispatcher, EncodedResponse, RequestContext
from tailrace.kafka.listener import KafkaListener
from tailrace.kafka.metrics import Traffic
from tailrace.model.errors import OverloadedError
from tailrace.model.limits import Limits
from tailrace.wire.messages.groups import (
    DELETE_GROUPS_API,
    HEARTBEAT_API,
    LIST_GROUPS_API,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListGroupsRequest,
)
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.support.aio import until
from tests.support.kafka import frame, sized

SIZE = Struct(">i")
BEAT = sized(frame(HEARTBEAT_API, 4, HeartbeatRequest()))
"""A request that is answered at once, with correlation id 7."""


@asynccontextmanager
async def served(*, stop_seconds: float = 0.5, **limits: int) -> AsyncIterator["Served"]:
    bounds = Limits(**limits)
    handlers = Handlers()
    traffic = Traffic()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        listener = KafkaListener(Dispatcher(handlers.routes(), traffic, bounds), bound, traffic, bounds, stop_seconds)
        await listener.start()
        held = Served(handlers, traffic, listener, bound.getsockname()[1])
        try:
            yield held
        finally:
            held.close()
            await listener.stop()
            await until(lambda: traffic.open == 0)
            assert traffic.held_bytes == 0


class Served:
    def __init__(self, handlers: "Handlers", traffic: Traffic, listener: KafkaListener, port: int) -> None:
        self.handlers = handlers
        self.traffic = traffic
        self.listener = listener
        self._port = port
        self._sides: list[Side] = []

    async def connect(self) -> "Side":
        side = Side(*await asyncio.open_connection("127.0.0.1", self._port))
        self._sides.append(side)
        return side

    def close(self) -> None:
        for side in self._sides:
            side.writer.close()


class Side:
    """The client's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> bytes:
        (size,) = SIZE.unpack(await self.reader.readexactly(SIZE.size))
        return await self.reader.readexactly(size)

    async def correlation_id(self) -> int:
        (number,) = SIZE.unpack_from(await self.receive())
        return int(number)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


class Handlers:
    """Answers heartbeats at once, produces when the test settles them, and lists of groups after `gate`."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.gate = asyncio.Event()
        self.beats = 0
        self.cancelled = 0
        self.answer_bytes = 0

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(HEARTBEAT_API, self.beat),
            ApiRoute(PRODUCE_API, self.produce, overlaps=True),
            ApiRoute(LIST_GROUPS_API, self.wait),
            ApiRoute(DELETE_GROUPS_API, self.fail),
        ]

    def beat(self, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        self.beats += 1
        return HeartbeatResponse()

    def produce(self, context: RequestContext, request: ProduceRequest) -> DeferredResponse:
        done = asyncio.get_running_loop().create_future()
        self.waiting.append(done)
        return DeferredResponse(done, lambda _: ProduceResponse() if request.acks else None)

    async def wait(self, context: RequestContext, request: ListGroupsRequest) -> EncodedResponse:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return EncodedResponse([bytes(self.answer_bytes)])

    async def fail(self, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        if request.groups_names:
            raise OverloadedError("not now")
        raise ZeroDivisionError("a defect")


def beats(count: int) -> bytes:
    return numbered(lambda number: frame(HEARTBEAT_API, 4, HeartbeatRequest(), number), count)


def sends(count: int, records: int = 0) -> bytes:
    topics = (TopicProduceData(partition_data=(PartitionProduceData(records=bytes(records)),)),)
    return numbered(lambda number: frame(PRODUCE_API, 9, ProduceRequest(acks=-1, topic_data=topics), number), count)


def lists(count: int) -> bytes:
    return numbered(lambda number: frame(LIST_GROUPS_API, 4, ListGroupsRequest(), number), count)


def numbered(make: Callable[[int], bytearray], count: int) -> bytes:
    return b"".join(sized(make(number)) for number in range(count))
