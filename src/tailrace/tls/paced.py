"""Hands data to a connection with TLS piece by piece, as the client takes it.

The event loop encrypts all that it is given at once, and takes what waits for the network as sent: a client that reads nothing
would hold an encrypted copy of every large answer, which no limit knows. So what is written waits here, as it is, until the
connection has room for the next piece, and counts as unsent meanwhile, as it does without TLS. Small parts are joined, because
each would become a record of TLS by itself.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from tailrace.model.commit import Buffer

_PIECE_BYTES = 256 * 1024
_SMALL_BYTES = 16 * 1024
"""The payload of one record of TLS."""
_HIGH_BYTES = 64 * 1024
"""Above it a protocol is told to pause, unless it says otherwise: what asyncio does by default."""


class PacedTransport(asyncio.Transport):
    """What the protocol of a connection sees as its transport. `stall_seconds` is how long a close waits for a client."""

    def __init__(self, transport: asyncio.Transport, adapter: "_Adapter", stall_seconds: float) -> None:
        self._transport = transport
        self._adapter: _Adapter | None = adapter
        self._stall_seconds = stall_seconds
        self._waiting: deque[Buffer] = deque()
        self._waiting_bytes = 0
        self._is_full = False
        """Whether the connection takes no more at the moment."""
        self._is_closing = False
        self._closing: asyncio.TimerHandle | None = None
        self._is_protocol_paused = False
        self._high = _HIGH_BYTES
        self._low = _HIGH_BYTES // 4
        # Not 0, with which connections with TLS are paused from the beginning.
        transport.set_write_buffer_limits(high=1)

    def write(self, data: Buffer) -> None:
        if self.is_closing() or not data:
            return
        if self._waiting or self._is_full or len(data) > _PIECE_BYTES:
            self._wait_with(data)
            self._send()
        else:
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if not self.is_closing():
            for data in list_of_data:
                if data:
                    self._wait_with(data)
            self._send()

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def close(self) -> None:
        """Close the connection when the client has taken what was written, or takes nothing of it for a while."""
        if self.is_closing():
            return
        self._is_closing = True
        if self._waiting:
            self._transport.pause_reading()
            self._watch(self._waiting_bytes)
        else:
            self._transport.close()

    def abort(self) -> None:
        self.forget()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._transport.resume_reading()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if self._adapter is not None:
            self._adapter.protocol = protocol

    def fill(self) -> None:
        """Take note that the connection takes no more."""
        self._is_full = True

    def drain(self) -> None:
        """Go on, because the connection takes more."""
        self._is_full = False
        self._send()

    def forget(self) -> None:
        """Drop what was not sent. The connection is lost."""
        self._is_closing = True
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        # Otherwise a cycle of references would keep all until the next garbage collection, and these are rare.
        self._adapter = None

    def _wait_with(self, data: Buffer) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _send(self) -> None:
        while self._waiting and not self._is_full and not self._transport.is_closing():
            self._transport.write(self._next_piece())
        if self._is_closing:
            if not self._waiting:
                self._transport.close()
            return
        if self._adapter is None:
            return
        size = self.get_write_buffer_size()
        if size > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            self._adapter.protocol.pause_writing()
        elif size <= self._low and self._is_protocol_paused:
            self._is_protocol_paused = False
            self._adapter.protocol.resume_writing()

    def _next_piece(self) -> Buffer:
        """Return the beginning of a large part, or small ones joined."""
        waiting = self._waiting
        piece = waiting.popleft()
        if len(piece) > _PIECE_BYTES:
            view = memoryview(piece)
            waiting.appendleft(view[_PIECE_BYTES:])
            piece = view[:_PIECE_BYTES]
        elif waiting and len(piece) < _SMALL_BYTES:
            joined = bytearray(piece)
            while waiting and len(waiting[0]) < _SMALL_BYTES and len(joined) < _HIGH_BYTES:
                joined += waiting.popleft()
            piece = joined
        self._waiting_bytes -= len(piece)
        return piece

    def _watch(self, before: int) -> None:
        """Abort the connection if the client takes nothing of what is left before it is closed."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            if self._waiting_bytes >= before:
                self.abort()
            else:
                self._watch(self._waiting_bytes)

        self._closing = loop.call_later(self._stall_seconds, look)


_NOBODY = asyncio.BufferedProtocol()


class _Adapter:
    """Stands between a connection with TLS and the protocol that it is for."""

    def __init__(self, protocol: asyncio.BaseProtocol, stall_seconds: float) -> None:
        self.protocol = protocol
        self._stall_seconds = stall_seconds
        self._paced: PacedTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._paced = PacedTransport(self._transport, self, self._stall_seconds)
        self.protocol.connection_made(self._paced)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._paced is not None:
            self._paced.forget()
            # The event loop keeps the methods of the last protocol with buffers, and so a cycle of references with all that
            # belongs to the connection. To collect those of a few hundred connections takes milliseconds at one go.
            self._transport.set_protocol(_NOBODY)
            self._paced = None
        self.protocol.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return cast(asyncio.Protocol, self.protocol).eof_received()

    def pause_writing(self) -> None:
        if self._paced is not None:
            self._paced.fill()

    def resume_writing(self) -> None:
        if self._paced is not None:
            self._paced.drain()


class _PacedProtocol(_Adapter, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        # Not bound once: a connection may change to a WebSocket.
        cast(asyncio.Protocol, self.protocol).data_received(data)


class _PacedBufferedProtocol(_Adapter, asyncio.BufferedProtocol):
    def __init__(self, protocol: asyncio.BufferedProtocol, stall_seconds: float) -> None:
        super().__init__(protocol, stall_seconds)
        # The event loop calls them without a detour.
        self.get_buffer = protocol.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = protocol.buffer_updated  # type: ignore[method-assign]


def paced(protocol: asyncio.BaseProtocol, stall_seconds: float) -> asyncio.BaseProtocol:
    """Return what a connection with TLS is given as its protocol in place of this one."""
    if isinstance(protocol, asyncio.BufferedProtocol):
        return _PacedBufferedProtocol(protocol, stall_seconds)
    return _PacedProtocol(protocol, stall_seconds)
