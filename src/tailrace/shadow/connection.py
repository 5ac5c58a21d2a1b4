"""One connection to a Kafka broker, as a client: requests leave as they are asked for, and responses come in their order.

A response is received straight into a buffer of its size, and batches of records are views of it, so that they are copied
nowhere between two sockets. A connection that fails, or is silent for too long, fails all that was asked; nothing is sent
again.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Self, TypeVar, cast

from tailrace.model.address import Address
from tailrace.model.commit import Buffer
from tailrace.model.errors import TailraceError
from tailrace.model.limits import MIB
from tailrace.shadow.failures import UNSUPPORTED_VERSION, KafkaRefusalError, ShadowError, UnreachableError
from tailrace.shadow.kafka_access import KafkaAccess
from tailrace.shadow.sasl import authenticate
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.authentication import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersionsRequest, ApiVersionsResponse

M = TypeVar("M", bound=KafkaMessage)

_MOST_RESPONSE_BYTES = 256 * MIB
"""A response may be larger than what was asked for by one batch."""
_HEAD = Struct(">ihhih")
_SIZE = Struct(">i")
_CORRELATION = Struct(">i")
_CODEC = MessageCodec()
_VERSIONS_VERSION = 3
_OLDEST_VERSIONS = 0


class Versions(NamedTuple):
    """The versions of an API that are used here, of which the highest that a broker knows too is taken."""

    api: Api
    lowest: int
    highest: int


class Asked(NamedTuple):
    """A request whose response has not come."""

    number: int
    api: Api
    version: int
    response: "asyncio.Future[bytearray]"
    timer: asyncio.TimerHandle


class BrokerConnection(asyncio.BufferedProtocol):
    """Used on the event loop. Made by `open`."""

    def __init__(self, access: KafkaAccess, address: Address) -> None:
        self._access = access
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._offered: dict[int, tuple[int, int]] = {}
        self._asked: deque[Asked] = deque()
        self._number = 0
        self._size = bytearray(_SIZE.size)
        self._buffer = self._size
        self._filled = 0
        self._is_size = True
        self._error: ShadowError | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def open(cls, access: KafkaAccess, address: Address) -> Self:
        """Connect to a broker and say who we are. Raises `ShadowError`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(access.connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: cls(access, address),
                    address.host,
                    address.port,
                    ssl=access.tls,
                    server_hostname=address.host if access.tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            raise _unreachable(access, address, error, access.connect_seconds) from error
        try:
            await connection._learn_versions()
            if access.mechanism is not None:
                await connection._authenticate(access.mechanism)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._error is None

    def close(self) -> None:
        self._fail(UnreachableError("the connection was closed", ""))

    def version(self, used: Versions) -> int:
        """Return the version in which to speak. Raises `ShadowError` if the broker has none of those."""
        lowest, highest = self._offered.get(used.api.key, (0, -1))
        version = min(used.highest, highest)
        if version < max(used.lowest, lowest):
            raise KafkaRefusalError(
                UNSUPPORTED_VERSION,
                f"{self._access.what} has {used.api.name} in versions {lowest} to {highest}, and {used.lowest} to"
                f" {used.highest} are needed",
            )
        return version

    async def ask(self, used: Versions, request: KafkaMessage, response: type[M], *, seconds: float = 0.0) -> M:
        """Send a request and return the response. `seconds` is how long the broker may wait before it answers."""
        version = self.version(used)
        return self.decode(used.api, version, await self.send(used.api, version, request, seconds=seconds), response)

    def send(self, api: Api, version: int, request: KafkaMessage, *, seconds: float = 0.0) -> "asyncio.Future[bytearray]":
        """Send a request. The future is done when its response is there."""
        body = bytearray()
        _CODEC.write(request, version, api.is_flexible(version), body)
        return self.send_parts(api, version, [body], seconds=seconds)

    def send_parts(
        self, api: Api, version: int, body: Sequence[Buffer], *, seconds: float = 0.0
    ) -> "asyncio.Future[bytearray]":
        """Send a request whose body is encoded already. Its parts must not change until the response is there."""
        if self._error is not None or self._transport is None:
            raise self._error or UnreachableError(f"{self._access.what} is not connected", "")
        self._number = self._number % 0x7FFFFFFF + 1
        client_id = self._access.client_id.encode()
        size = sum(map(len, body)) + _HEAD.size - _SIZE.size + len(client_id) + api.is_flexible(version)
        head = _HEAD.pack(size, api.key, version, self._number, len(client_id)) + client_id
        if api.is_flexible(version):
            head += b"\0"
        answer: asyncio.Future[bytearray] = self._loop.create_future()
        timer = self._loop.call_later(seconds + self._access.request_seconds, self._time_out, api, seconds)
        self._asked.append(Asked(self._number, api, version, answer, timer))
        self._transport.writelines([head, *body])
        return answer

    async def writable(self) -> None:
        """Wait while the connection has more to send than it should."""
        await self._writable.wait()
        if self._error is not None:
            raise self._error

    def decode(self, api: Api, version: int, data: bytearray, response: type[M]) -> M:
        """Read a response. Batches of records in it are views of `data`, which may be written to."""
        is_flexible = api.is_flexible(version)
        # A response to ApiVersions never has tagged fields in its head.
        at = _CORRELATION.size + (is_flexible and api is not API_VERSIONS_API)
        try:
            return _CODEC.read(response, version, is_flexible, MessageSource(memoryview(data), at))
        except TailraceError as error:
            failure = self._unreachable(f"sent a response to {api.name} that can't be read: {error}")
            self._fail(failure)
            raise failure from error

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name=self._access.client_id, client_software_version="1")
        for version in (_VERSIONS_VERSION, _OLDEST_VERSIONS):
            data = await self.send(API_VERSIONS_API, version, request)
            if version and int.from_bytes(data[_CORRELATION.size : _CORRELATION.size + 2]) == UNSUPPORTED_VERSION:
                continue
            found = self.decode(API_VERSIONS_API, version, data, ApiVersionsResponse)
            if found.error_code:
                raise KafkaRefusalError(found.error_code, f"{self._access.what} does not say what it can do")
            self._offered = {api.api_key: (api.min_version, api.max_version) for api in found.api_keys}
            return

    async def _authenticate(self, mechanism: str) -> None:
        access = self._access
        found = await self.ask(
            Versions(SASL_HANDSHAKE_API, 1, 1), SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse
        )
        if found.error_code:
            raise ShadowError(
                f"{access.what} does not know the SASL mechanism {mechanism}, only {', '.join(found.mechanisms) or 'none'}",
                "Set sasl.mechanism of the shadow to one of them",
                state="failed",
            )
        exchange = authenticate(mechanism, access.user, access.password())
        message = next(exchange)
        while True:
            answer = await self.ask(
                Versions(SASL_AUTHENTICATE_API, 0, 2), SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
            )
            if answer.error_code:
                raise KafkaRefusalError(
                    answer.error_code, f"{access.what} does not let user {access.user!r} in", answer.error_message
                )
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                return

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MIB)

    def get_buffer(self, sizehint: int) -> Buffer:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._buffer):
            return
        if self._is_size:
            (size,) = _SIZE.unpack(self._size)
            if not _CORRELATION.size <= size <= _MOST_RESPONSE_BYTES:
                self._fail(self._unreachable(f"announced a response of {size} bytes, so it does not speak Kafka's protocol"))
                return
            self._buffer = bytearray(size)
        else:
            self._received(self._buffer)
            self._buffer = self._size
        self._is_size = not self._is_size
        self._filled = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self._unreachable("closed the connection" if exc is None else f"lost the connection: {exc}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _received(self, response: bytearray) -> None:
        (number,) = _CORRELATION.unpack_from(response)
        if not self._asked or self._asked[0].number != number:
            self._fail(self._unreachable("answered another request than was asked"))
            return
        asked = self._asked.popleft()
        asked.timer.cancel()
        if not asked.response.done():
            asked.response.set_result(response)

    def _time_out(self, api: Api, seconds: float) -> None:
        limit = seconds + self._access.request_seconds
        self._fail(self._unreachable(f"did not answer {api.name} within {limit:g} s"))

    def _fail(self, error: ShadowError) -> None:
        if self._error is None:
            self._error = error
        self._writable.set()
        while self._asked:
            asked = self._asked.popleft()
            asked.timer.cancel()
            if not asked.response.done():
                asked.response.set_exception(self._error)
                # Whoever has stopped to wait for it has failed already.
                asked.response.exception()
        if self._transport is not None:
            self._transport.abort()

    def _unreachable(self, what: str) -> UnreachableError:
        return UnreachableError(
            f"{self._access.what} ({self.address}) {what}", "It is tried again by itself. Check that it runs"
        )


def _unreachable(access: KafkaAccess, address: Address, error: Exception, seconds: float) -> UnreachableError:
    why = f"no connection within {seconds:g} s" if isinstance(error, TimeoutError) else str(error)
    advice = "It is tried again by itself. Check that it runs and can be reached from here"
    if access.tls is not None:
        advice += ", and that its certificate is signed by an authority of ssl.ca.location"
    return UnreachableError(f"{access.what} can't be reached at {address}: {why}", advice)
