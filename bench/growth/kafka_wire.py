"""Kafka's protocol on bare sockets: a thousand connections in one process, which no client library likes to hold.

Requests are made before the clock runs, and answers are read when it has stopped.
"""

import asyncio
from collections.abc import Iterator, Sequence
from struct import Struct

from tailrace.model.address import Address
from tailrace.model.commit import Buffer
from tailrace.wire.message import KafkaMessage
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.fetch import FETCH_API, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

_PRODUCE_VERSION, _FETCH_VERSION = 8, 11
"""The last ones with a simple header."""
_HEAD = Struct(">ihhih")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
_ANSWER_MS = 30_000
_FROM_ONE_ADDRESS = 500
"""A server lets one address have 800 connections; more come from other addresses of the machine."""


class WireConnection(asyncio.Protocol):
    """One request at a time."""

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
    """For one batch."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    return _request(
        FETCH_API.key,
        _FETCH_VERSION,
        FetchRequest(min_bytes=1, max_bytes=1, topics=(FetchTopic(topic=topic, partitions=(partition,)),)),
    )


def produced_offsets(answers: Sequence[bytes]) -> Iterator[int]:
    """Where each batch was put; -1 if it was refused."""
    codec = MessageCodec()
    for answer in answers:
        response = codec.read(ProduceResponse, _PRODUCE_VERSION, False, MessageSource(answer, _CORRELATION_BYTES))
        for topic in response.responses:
            for partition in topic.partition_responses:
                yield -1 if partition.error_code else partition.base_offset


def fetched_batches(answers: Sequence[bytes]) -> Iterator[Buffer]:
    """What each fetch gave; empty if it was refused."""
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
