"""The cost of a request as the number of Kafka connections grows.

The client speaks Kafka's protocol on plain sockets, because no client library handles a thousand connections in one process
well. Requests are made before the clock starts, and responses are decoded after it has stopped.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from struct import Struct
from typing import NamedTuple

import uvloop

from bench.audit import AuditFailure
from bench.batches import KB_1, ring_of_copies
from bench.figures import FLAT, Curve, Figure, Samples, Section, curve, slope_figure, take_turns
from bench.http.server import HttpServer, serving
from bench.machine import exact_cpu_seconds_of
from bench.workspace import Workspace, settle_disk
from tailrace.model.address import Address
from tailrace.model.commit import Buffer
from tailrace.wire.batch import check_batch
from tailrace.wire.message import KafkaMessage
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.fetch import FETCH_API, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

_PRODUCE_VERSION, _FETCH_VERSION = 8, 11
"""The last versions with a simple header."""
_HEAD = Struct(">ihhih")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
_ANSWER_MS = 30_000
_FROM_ONE_ADDRESS = 500
"""A server allows 800 connections from one address; further ones use other addresses of the machine."""


class WireConnection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = _SIZE_BYTES + int.from_bytes(self._received[:_SIZE_BYTES], "big")
        if len(self._received) >= max(size, _SIZE_BYTES + 1) and self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set_result(bytes(self._received[_SIZE_BYTES:size]))
            del self._received[:size]

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.set_exception(error or ConnectionError("the server closed the connection"))

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self._transport.abort()


async def open_connections(address: Address, count: int) -> list[WireConnection]:
    loop = asyncio.get_running_loop()
    return [
        (await loop.create_connection(WireConnection, *address, local_addr=(f"127.0.0.{1 + nth // _FROM_ONE_ADDRESS}", 0)))[1]
        for nth in range(count)
    ]


def produce_request(topic: str, batch: Buffer) -> bytes:
    partition = PartitionProduceData(index=0, records=batch)
    data = (TopicProduceData(name=topic, partition_data=(partition,)),)
    return _request(PRODUCE_API.key, _PRODUCE_VERSION, ProduceRequest(acks=-1, timeout_ms=_ANSWER_MS, topic_data=data))


def fetch_request(topic: str, offset: int) -> bytes:
    """Encode a request for one batch."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    return _request(
        FETCH_API.key,
        _FETCH_VERSION,
        FetchRequest(min_bytes=1, max_bytes=1, topics=(FetchTopic(topic=topic, partitions=(partition,)),)),
    )


def produced_offsets(answers: Sequence[bytes]) -> Iterator[int]:
    """Return the offset of each batch, or -1 if it was refused."""
    codec = MessageCodec()
    for answer in answers:
        response = codec.read(ProduceResponse, _PRODUCE_VERSION, False, MessageSource(answer, _CORRELATION_BYTES))
        for topic in response.responses:
            for partition in topic.partition_responses:
                yield -1 if partition.error_code else partition.base_offset


def fetched_batches(answers: Sequence[bytes]) -> Iterator[Buffer]:
    """Return what each fetch returned; nothing if it was refused."""
    codec = MessageCodec()
    for answer in answers:
        response = codec.read(FetchResponse, _FETCH_VERSION, False, MessageSource(answer, _CORRELATION_BYTES))
        for topic in response.responses:
            for partition in topic.partitions:
                yield b"" if partition.error_code else partition.records or b""


def _request(key: int, version: int, message: KafkaMessage) -> bytes:
    body = bytearray()
    MessageCodec().write(message, version, False, body)
    return _HEAD.pack(_HEAD.size - _SIZE_BYTES + len(body), key, version, 1, -1) + bytes(body)


_TOPIC = "bench.many"
_DISTINCT = 16_384


class _Turn(NamedTuple):
    produced: float
    """Requests per second."""
    fetched: float
    produce_cpu: float
    """The server's CPU time for each, in microseconds."""
    fetch_cpu: float
    memory_megabytes: float


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.growth
    counts = scale.connections
    with ExitStack() as stack:
        by_count = {}
        for count in counts:
            workspace.say(f"growth, connections: {count:,} are opened")
            server = stack.enter_context(serving(workspace, "relaxed"))
            server.create_topic(_TOPIC)
            by_count[count] = stack.enter_context(_OpenConnections(server, count))
        workspace.say("growth, connections: produce and fetch")
        found = take_turns({str(count): many.turn for count, many in by_count.items()}, scale.connection_calls, scale.rounds)

    def of(name: str, unit: str, place: int) -> Curve:
        return curve(name, "connections", unit, {count: [turn[place] for turn in found[str(count)]] for count in counts})

    produced, fetched = of("produce", "requests/s", 0), of("fetch", "requests/s", 1)
    produce_cpu, fetch_cpu = of("produce, server's CPU", "µs", 2), of("fetch, server's CPU", "µs", 3)
    memory = of("memory of the server", "MB", 4)
    each_kilobytes = [
        (with_many.memory_megabytes - with_few.memory_megabytes) * 1e3 / (counts[-1] - counts[0])
        for with_few, with_many in zip(found[str(counts[0])], found[str(counts[-1])], strict=True)
    ]
    return Section(
        title="Growth: connections",
        text="Kafka connections on bare sockets, all in one process, each with one request on its way:"
        f" {scale.connection_calls:,} produces of a {KB_1.name} batch (`relaxed`), then as many fetches of one batch, shared by"
        " all connections. Each number of connections has a server of its own, and they take turns. One connection waits for"
        " each answer, so more of them are faster until the cores are busy. Every batch must have an offset of its own and come"
        " back.",
        figures=[
            slope_figure(produce_cpu, FLAT),
            slope_figure(fetch_cpu, FLAT),
            Figure(name=f"memory for each of {counts[-1]:,} connections", ours=Samples(tuple(each_kilobytes)), unit="KB"),
        ],
        curves=[produced, fetched, produce_cpu, fetch_cpu, memory],
    )


class _OpenConnections:
    """A server and its connections, which stay open between rounds."""

    def __init__(self, server: HttpServer, connections: int) -> None:
        self._server = server
        self._count = connections
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._ring = ring_of_copies(KB_1, _DISTINCT)
        self._produced = 0

    def __enter__(self) -> "_OpenConnections":
        self._connections = self._runner.run(open_connections(self._server.kafka, self._count))
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def turn(self, calls: int) -> _Turn:
        settle_disk()
        first, end = self._produced, self._produced + calls
        numbers = [number % _DISTINCT for number in range(first, end)]
        produces = [produce_request(_TOPIC, self._ring.batches[number]) for number in numbers]
        fetches = [fetch_request(_TOPIC, offset) for offset in range(first, end)]
        before = exact_cpu_seconds_of(self._server.pid)
        produce_seconds, produced = self._runner.run(self._ask_all(produces))
        between = exact_cpu_seconds_of(self._server.pid)
        fetch_seconds, fetched = self._runner.run(self._ask_all(fetches))
        after = exact_cpu_seconds_of(self._server.pid)
        self._produced = end
        self._check(range(first, end), numbers, produced, fetched)
        return _Turn(
            calls / produce_seconds,
            calls / fetch_seconds,
            (between - before) / calls * 1e6,
            (after - between) / calls * 1e6,
            self._server.memory_megabytes,
        )

    async def _ask_all(self, requests: Sequence[bytes]) -> tuple[float, list[bytes]]:
        """Send requests; return the seconds and the responses, in any order."""
        left = iter(requests)
        answers: list[bytes] = []

        async def work(connection: WireConnection) -> None:
            # Not a comprehension: each connection takes the next request when it is free.
            for request in left:
                answers.append(await connection.ask(request))  # noqa: PERF401

        began = time.perf_counter()
        await asyncio.gather(*map(work, self._connections))
        return time.perf_counter() - began, answers

    def _check(self, due: range, numbers: Sequence[int], produced: Sequence[bytes], fetched: Sequence[bytes]) -> None:
        if sorted(produced_offsets(produced)) != list(due):
            raise AuditFailure(f"batches {due.start} to {due.stop - 1} were produced and not acknowledged at these offsets")
        batches = list(fetched_batches(fetched))
        if sorted(check_batch(batch).base_offset for batch in batches) != list(due):
            raise AuditFailure(f"batches {due.start} to {due.stop - 1} were fetched and did not come once each")
        if sorted(map(self._ring.number_of, batches)) != sorted(numbers):
            raise AuditFailure(f"batches {due.start} to {due.stop - 1} came, but not those that were sent")

    async def _close(self) -> None:
        for connection in self._connections:
            connection.close()
