"""Kafka requests without a client library: to handlers in the same process, and over a socket to a real server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from struct import Struct
from typing import Any, NamedTuple

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import DEFAULT_SECURITY_SETTINGS, SecuritySettings
from tailrace.kafka.apis import create_dispatcher
from tailrace.kafka.cluster import Cluster, KafkaSettings
from tailrace.kafka.dispatch import Dispatcher, KafkaClient, PendingResponse, ResponseParts
from tailrace.kafka.metrics import Traffic
from tailrace.model.address import Address
from tailrace.model.clock import Clock
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_SECONDS

CLUSTER = Cluster("the-cluster", Address("tailrace.example", 9092))
CLIENT = KafkaClient("192.0.2.1", 1)

_HEAD = Struct(">hhih")
_SIZE = Struct(">i")
_CODEC = MessageCodec()
_API_VERSIONS = 18


def frame(api: Api, version: int, request: KafkaMessage, correlation_id: int = 7) -> bytearray:
    """Encode a request as on the wire, without its size."""
    flexible = api.is_flexible(version)
    out = bytearray(_HEAD.pack(api.key, version, correlation_id, 4) + b"test")
    if flexible:
        out.append(0)
    _CODEC.write(request, version, flexible, out)
    return out


def sized(body: bytes | bytearray) -> bytes:
    return _SIZE.pack(len(body)) + body


def read_response(api: Api, version: int, data: bytes) -> tuple[int, Any]:
    """Decode correlation id and response, and check that no bytes are left."""
    source = MessageSource(data, 4)
    flexible = api.is_flexible(version)
    if flexible and api.key != _API_VERSIONS:
        assert data[source.at] == 0
        source.at += 1
    response = _CODEC.read(api.response, version, flexible, source)
    assert source.at == len(data), f"{len(data) - source.at} bytes too many"
    return _SIZE.unpack_from(data)[0], response


async def answer_of(pending: PendingResponse, patience_seconds: float | None = None) -> ResponseParts:
    """Wait for a response as a connection does. Abandon it if it is not settled in time."""
    settled = asyncio.Event()
    pending.on_settled = lambda _: settled.set()
    if not pending.is_settled:
        try:
            await asyncio.wait_for(settled.wait(), patience_seconds)
        except TimeoutError:
            pending.abandon()
            return None
    if pending.error is not None:
        raise pending.error
    return pending.response


class Asker(NamedTuple):
    """Sends requests to the handlers of a broker, bytes in and bytes out, as a connection does."""

    broker: Broker
    dispatcher: Dispatcher
    traffic: Traffic

    async def ask(self, api: Api, request: KafkaMessage, version: int | None = None, client: KafkaClient = CLIENT) -> Any:
        version = api.highest if version is None else version
        # In a context of its own, as on a connection: what the test does itself is not done by the client.
        reply = copy_context().run(self.dispatcher.dispatch, frame(api, version, request), client)
        if isinstance(reply, PendingResponse):
            reply = await answer_of(reply)
        if reply is None:
            return None
        data = b"".join(reply)
        assert _SIZE.unpack_from(data)[0] == len(data) - _SIZE.size
        correlation_id, response = read_response(api, version, data[_SIZE.size :])
        assert correlation_id == 7
        return response


@asynccontextmanager
async def running_asker(
    settings: KafkaSettings | None = None,
    clock: Clock | None = None,
    limits: Limits = DEFAULT_LIMITS,
    security: SecuritySettings = DEFAULT_SECURITY_SETTINGS,
) -> AsyncIterator[Asker]:
    clock = clock or ManualClock()
    async with running_broker(clock=clock, limits=limits, security=security) as broker:
        yield asker_of(broker, clock, settings, limits)


def asker_of(
    broker: Broker,
    clock: Clock,
    settings: KafkaSettings | None = None,
    limits: Limits = DEFAULT_LIMITS,
    port: int | None = None,
) -> Asker:
    """With a port clients are told to connect to it on this machine."""
    traffic = Traffic()
    cluster = CLUSTER if port is None else Cluster(broker.cluster_id, Address("127.0.0.1", port))
    return Asker(broker, create_dispatcher(broker, cluster, settings or KafkaSettings(), traffic, clock, limits), traffic)


class RawClient:
    """A blocking socket to a real server."""

    def __init__(self, address: str, timeout: float = PATIENCE_SECONDS, source: str | None = None) -> None:
        """`source` is the address to connect from."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout, None if source is None else (source, 0))

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, api: Api, request: KafkaMessage, version: int | None = None) -> Any:
        version = api.highest if version is None else version
        self.socket.sendall(sized(frame(api, version, request)))
        return read_response(api, version, self.receive())[1]

    def receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        return self._exactly(size)

    def is_closed_by_server(self) -> bool:
        """Wait until the server closes the connection. Fail if it sends anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += more
        return bytes(data)
