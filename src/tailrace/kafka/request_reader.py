"""Cuts the bytes that a Kafka client sends into requests, within the bounds of its connection and of all connections.

Bytes are received straight into the buffer of the request that they belong to, so that a large produce is copied nowhere on its
way to the log. Small requests come through a scratch buffer that all connections share: it is filled and emptied in one turn of
the event loop. The bytes of a request count as held from its first byte until it is answered.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from tailrace.model.commit import Buffer
from tailrace.model.limits import KIB, MIB

if TYPE_CHECKING:
    from tailrace.kafka.connection import SharedContext

SCRATCH_BYTES = 64 * KIB
_SMALL_BYTES = 16 * KIB
_FEW_REQUESTS = 8
"""A connection may always have this many requests of up to `_SMALL_BYTES`, whatever the others hold. Otherwise a few
connections with large requests would block all the others."""
_FIRST_BYTES = 64 * KIB
_SECOND_BYTES = MIB
_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size
_MIN_REQUEST_BYTES = 8

_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
_TLS = b"\x16\x03"


_HTTP_PROBLEM = (
    b'{"type":"about:blank","title":"Bad Request","status":400,"detail":"this is the Kafka listener; use the HTTP address,'
    b' which the server prints when it starts","retriable":false,"outcome":"failed"}'
)
_HTTP_RESPONSE = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_HTTP_PROBLEM), _HTTP_PROBLEM)
)


class UnreadableRequestError(Exception):
    """The next bytes are not a request. `reason` is the label of the metric `connections_closed`."""

    def __init__(self, reason: str, message: str, response: bytes = b"") -> None:
        super().__init__(message)
        self.reason = reason
        self.response = response
        """What to send before the connection is closed, in the protocol that the client speaks."""


class RequestReader:
    def __init__(self, shared: "SharedContext", wait_for_memory: Callable[[], None], now: Callable[[], float]) -> None:
        """Call `wait_for_memory` when all connections together hold too much to continue reading."""
        self._scratch = shared.scratch
        self._limits = shared.limits
        self._traffic = shared.traffic
        self._registry = shared.registry
        self._wait_for_memory = wait_for_memory
        self._now = now
        self._partial: _PartialRequest | None = None
        self._held_bytes = 0
        self.most_bytes = shared.limits.request_bytes
        """Bytes of the largest request."""
        self.unparsed = b""
        """Bytes that were received and not parsed: the beginning of a size, or requests for which there was no memory."""
        self.requests: deque[bytearray] = deque()
        """Complete requests that have not been started."""
        self.in_flight = 0
        """Complete requests that have not been answered."""
        self.has_begun = False
        """Whether the client has begun to send a request."""

    def is_late(self, now: float, seconds: float) -> bool:
        """Return whether the request that is being received has taken longer than this."""
        return self._partial is not None and now - self._partial.began_at > seconds

    def buffer(self) -> Buffer:
        """Return the buffer for the next bytes."""
        partial = self._partial
        if partial is None:
            return self._scratch
        if len(partial.data) < partial.room:
            # Extended here and not in `wants_bytes`: until now the event loop may hold a view of the buffer.
            partial.data.extend(bytes(partial.room - len(partial.data)))
        return memoryview(partial.data)[partial.filled :]

    def received(self, size: int) -> bool:
        """Take bytes that were written to the buffer. Return false while the current request is not complete."""
        partial = self._partial
        if partial is None:
            data = self._scratch[:size]
            if self.unparsed:
                data = memoryview(self.unparsed + data)
                self.unparsed = b""
            self._parse(data)
            return True
        partial.filled += size
        if partial.filled < partial.size:
            return False
        self._partial = None
        self.requests.append(partial.data)
        self.in_flight += 1
        return True

    def can_parse_more(self) -> bool:
        """Return whether another request has begun to arrive and there is memory for it."""
        return len(self.unparsed) >= _SIZE_BYTES and self._partial is None and not self.is_full()

    def parse_more(self) -> None:
        """Parse bytes that were received earlier."""
        data, self.unparsed = self.unparsed, b""
        self._parse(memoryview(data))

    def wants_bytes(self, may_begin: bool) -> bool:
        """Return whether to read: to continue the current request, or, if it `may_begin`, the next one.

        A large request gets its memory step by step, as its bytes arrive.
        """
        partial = self._partial
        if partial is None:
            return may_begin and len(self.unparsed) < _SIZE_BYTES and not self.is_full()
        if partial.filled < partial.room:
            return True
        room = _room_for(partial.size, partial.filled)
        if not self._has_memory_for(room - partial.room):
            return False
        self._hold(room - partial.room)
        partial.room = room
        return True

    def is_full(self, size: int = 0) -> bool:
        """Return whether another request must wait, because of this connection's bounds or those of all connections."""
        limits = self._limits
        in_flight = self.in_flight
        if in_flight and (in_flight >= limits.pipelined_requests or self._held_bytes + size > limits.pipelined_bytes):
            return True
        return (size > _SMALL_BYTES or in_flight >= _FEW_REQUESTS) and not self._has_memory_for(size)

    def release(self, requests: int, size: int) -> None:
        """Release the memory of requests that have been answered."""
        self.in_flight -= requests
        # A response that is ready after `close` finds everything released already.
        size = min(size, self._held_bytes)
        self._held_bytes -= size
        self._traffic.held_bytes -= size
        self._registry.memory_was_released()

    def drop_requests(self) -> None:
        """Forget the requests that have not been started."""
        self.in_flight -= len(self.requests)
        self.requests.clear()

    def close(self) -> None:
        self.drop_requests()
        self.release(0, self._held_bytes)
        self._partial = None
        self.unparsed = b""
        # It refers to the connection, which would live on in a cycle until the next garbage collection, and these are rare.
        self._wait_for_memory = _ignore

    def _parse(self, data: memoryview) -> None:
        """Cut bytes into requests as far as there is memory for them, and keep the rest."""
        at = 0
        end = len(data)
        while end - at >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, at)
            if not _MIN_REQUEST_BYTES <= size <= self.most_bytes:
                raise self._bad_size(bytes(data[at : at + _SIZE_BYTES]), size)
            if self.is_full(size):
                break
            self.has_begun = True
            at += _SIZE_BYTES
            received = end - at
            if received < size:
                self._begin_partial(data[at:], size)
                at = end
                break
            self._hold(size)
            self.requests.append(bytearray(data[at : at + size]))
            self.in_flight += 1
            at += size
        if at < end:
            self.unparsed = bytes(data[at:])

    def _begin_partial(self, received: memoryview, size: int) -> None:
        room = _room_for(size, len(received))
        self._hold(room)
        data = bytearray(room)
        data[: len(received)] = received
        self._partial = _PartialRequest(data, len(received), size, self._now())

    def _bad_size(self, begin: bytes, size: int) -> UnreadableRequestError:
        if not self.has_begun and begin in _HTTP:
            return UnreadableRequestError("wrong_protocol", "sent an HTTP request to the Kafka listener", _HTTP_RESPONSE)
        if not self.has_begun and begin.startswith(_TLS):
            return UnreadableRequestError(
                "wrong_protocol",
                "sent a TLS handshake to the Kafka listener, which is plain text; set security.protocol to PLAINTEXT or"
                " SASL_PLAINTEXT there, or tls_certificate here",
            )
        most = self.most_bytes
        limit = "request_bytes" if most == self._limits.request_bytes else "unauthenticated_request_bytes"
        return UnreadableRequestError(
            "frame_size", f"announced a request of {size} bytes; {limit} allows {_MIN_REQUEST_BYTES} to {most}"
        )

    def _has_memory_for(self, more: int) -> bool:
        """Return whether all connections together may hold this much more."""
        held = self._traffic.held_bytes
        if held > 0 and held + more > self._limits.held_request_bytes:
            self._wait_for_memory()
            return False
        return True

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._traffic.held_bytes += size


class _PartialRequest:
    """A request whose bytes are still arriving."""

    __slots__ = ("began_at", "data", "filled", "room", "size")

    def __init__(self, data: bytearray, filled: int, size: int, began_at: float) -> None:
        self.data = data
        self.filled = filled
        self.size = size
        """The bytes that it will have in the end."""
        self.room = len(data)
        """The bytes that it may have by now."""
        self.began_at = began_at


def _ignore() -> None:
    pass


def _room_for(size: int, received: int) -> int:
    """Return how much memory a request gets when this much of it has arrived: who announces a lot must send it first."""
    if received < _FIRST_BYTES // 2:
        return min(size, _FIRST_BYTES)
    return min(size, max(_SECOND_BYTES, 2 * received))
