"""One client's connection: frames in, answers out, in order and within bounds.

Bytes are received straight into the buffer of the request that they belong to, so that a large produce is copied nowhere on its
way to the log. Small ones come through a scratch buffer that all connections share: it is filled and emptied in one turn.

A client that sends faster than it is answered is not read from until answers have gone out; one that does not take its answers
gets nothing more done. Both cost the server a bounded amount of memory, and `inspect` ends those who overdo it.
"""

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import Protocol, cast

import msgspec

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.kafka.dispatch import Dispatcher, KafkaClient, PendingResponse
from tailrace.kafka.metrics import Traffic
from tailrace.model.commit import Buffer
from tailrace.model.errors import TailraceError
from tailrace.model.limits import KIB, MIB, Limits

_log = logging.getLogger(__name__)

SCRATCH_BYTES = 64 * KIB
_SMALL_BYTES = 16 * KIB
_FEW_REQUESTS = 8
"""So many requests of a connection, each of that size, are taken however much is held already, so that large ones of some
do not silence the others."""
_FIRST_BYTES = 64 * KIB
_SECOND_BYTES = MIB
_PRESSED_SECONDS = 5
"""How long a client may take to send a request while memory is short, or take nothing of an answer while others wait for its
room."""
_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size
_LEAST_FRAME_BYTES = 8

_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
_TLS = b"\x16\x03"


class SharedContext(msgspec.Struct, frozen=True):
    """What all connections of a listener share."""

    dispatcher: Dispatcher
    limits: Limits
    traffic: Traffic
    scratch: memoryview
    lobby: "ConnectionRegistry"


class ConnectionRegistry(Protocol):
    """Who keeps the connections."""

    def opened(self, connection: "KafkaConnection") -> str:
        """Why the connection can't stay; nothing if it can."""

    def closed(self, connection: "KafkaConnection") -> None: ...

    def wait_for_room(self, connection: "KafkaConnection") -> None:
        """All connections together hold too much; `poke` this one when that has changed."""

    def room_was_made(self) -> None: ...

    def report(self, message: str) -> None:
        """The server closes a connection, and this is why."""


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: SharedContext, number: int) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._frame: bytearray | None = None
        """The request that is being received."""
        self._filled = 0
        self._frame_bytes = 0
        """What it will have in the end."""
        self._room = 0
        """What it may have by now."""
        self._rest: bytes | bytearray = b""
        """What was received and could not be dealt with yet."""
        self._queue: deque[bytearray] = deque()
        self._slots: deque[PendingResponse] = deque()
        self._held_bytes = 0
        self._unsent: list[ReadAnswer] = []
        """Answers that take room until the client has taken them."""
        self._unsent_bytes = 0
        self._is_reading = True
        self._can_write = True
        self._is_closing = False
        self._is_first = True
        self._is_about_to_send = False
        self._has_lone_request = False
        """Whether a request is being answered that no other may overlap."""
        self._opened_at = self._last_byte_at = self._frame_began_at = self._write_paused_at = self._loop.time()
        self._last_taken_at = self._opened_at
        self._drained: asyncio.Future[None] | None = None
        self.client = KafkaClient("", number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client = KafkaClient(str(peer[0]) if peer else "", self._number)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes)
        refusal = self._shared.lobby.opened(self)
        if refusal:
            self._end(refusal, f"{self.client.host} has no place here: {refusal}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        for slot in self._slots:
            slot.give_up()
        self._queue.clear()
        self._release(self._held_bytes)
        self._frame = None
        self._rest = b""
        self._all_sent()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._shared.lobby.closed(self)

    def get_buffer(self, sizehint: int) -> Buffer:
        frame = self._frame
        if frame is None:
            return self._shared.scratch
        if len(frame) < self._room:
            # Here and not when room was made, because the event loop still holds the buffer then.
            frame.extend(bytes(self._room - len(frame)))
        return memoryview(frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._shared.traffic.bytes_in += nbytes
        self._last_byte_at = self._loop.time()
        if self._is_closing:
            return
        frame = self._frame
        if frame is None:
            data = self._shared.scratch[:nbytes]
            if self._rest:
                data = memoryview(bytes(self._rest) + data)
                self._rest = b""
            self._cut(data)
            self._work()
            return
        self._filled += nbytes
        if self._filled == self._frame_bytes:
            self._frame = None
            self._queue.append(frame)
            self._work()
        elif self._filled == self._room:
            self._watch_reading()

    def pause_writing(self) -> None:
        self._can_write = False
        self._write_paused_at = self._last_taken_at = self._loop.time()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._watch_reading()

    def resume_writing(self) -> None:
        self._can_write = True
        self._all_sent()
        self._work()

    def inspect(self, now: float) -> None:
        """End the connection if it has been silent, slow or deaf for too long."""
        limits = self._limits
        is_pressed = self._shared.traffic.held_bytes > limits.held_request_bytes // 2
        patience = min(_PRESSED_SECONDS, limits.request_seconds) if is_pressed else limits.request_seconds
        if self._frame is not None and now - self._frame_began_at > patience:
            self._end("half_frame", f"{self.client.host} did not finish a request within {patience} s")
        elif self._is_first and now - self._opened_at > limits.request_seconds:
            self._end("no_request", f"{self.client.host} has not begun with a request in {limits.request_seconds} s")
        elif not self._can_write and now - self._write_paused_at > limits.unsent_seconds:
            self._end("slow_reader", f"{self.client.host} did not take its answers for {limits.unsent_seconds} s", now=True)
        elif not self._can_write and self._unsent and self._takes_nothing(now):
            self._end("slow_reader", f"{self.client.host} took nothing of its answer while others need its room", now=True)
        elif not self._slots and not self._queue and now - self._last_byte_at > limits.idle_connection_seconds:
            self._end("idle", f"{self.client.host} was silent for {limits.idle_connection_seconds} s")

    def _takes_nothing(self, now: float) -> bool:
        """Whether others wait for the room of this client's answers, of which it has taken nothing for a while."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._last_taken_at = now
        return self._unsent[0].is_pressed and now - self._last_taken_at > _PRESSED_SECONDS

    def finish(self) -> "asyncio.Future[None]":
        """Take no new request; the future is done when everything in flight is answered and the connection is closed."""
        self._is_closing = True
        self._queue.clear()
        self._drained = self._loop.create_future()
        if self._slots:
            self._watch_reading()
        else:
            self._transport.close()
        return self._drained

    def abort(self) -> None:
        self._transport.abort()

    def _cut(self, data: memoryview) -> None:
        """Cut what has been received into requests, as far as there is room for them."""
        at = 0
        end = len(data)
        while end - at >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, at)
            if not _LEAST_FRAME_BYTES <= size <= self._limits.request_bytes:
                self._refuse_frame(bytes(data[at : at + _SIZE_BYTES]), size)
                return
            if self._is_full(size):
                break
            self._is_first = False
            at += _SIZE_BYTES
            have = end - at
            if have < size:
                room = _room_for(size, have)
                self._hold(room)
                frame = bytearray(room)
                frame[:have] = data[at:]
                self._frame = frame
                self._filled = have
                self._frame_bytes = size
                self._room = room
                self._frame_began_at = self._loop.time()
                at = end
                break
            self._hold(size)
            self._queue.append(bytearray(data[at : at + size]))
            at += size
        if at < end:
            self._rest = bytes(data[at:])

    def _refuse_frame(self, begin: bytes, size: int) -> None:
        if self._is_first and begin in _HTTP:
            self._end("wrong_protocol", f"{self.client.host} speaks HTTP to the Kafka listener")
        elif self._is_first and begin.startswith(_TLS):
            self._end("wrong_protocol", f"{self.client.host} speaks TLS to the Kafka listener, which is plain text")
        else:
            self._end(
                "frame_size",
                f"{self.client.host} announced a request of {size} bytes; request_bytes allows {_LEAST_FRAME_BYTES}"
                f" to {self._limits.request_bytes}",
            )

    def _is_full(self, size: int = 0) -> bool:
        """Whether another request has to wait, for this connection's sake or for that of all."""
        limits = self._limits
        in_flight = len(self._queue) + len(self._slots)
        if in_flight and (in_flight >= limits.pipelined_requests or self._held_bytes + size > limits.pipelined_bytes):
            return True
        return (size > _SMALL_BYTES or in_flight >= _FEW_REQUESTS) and not self._has_room_for(size)

    def _has_room_for(self, more: int) -> bool:
        """Whether all connections together may hold so much more."""
        held = self._shared.traffic.held_bytes
        if held > 0 and held + more > self._limits.held_request_bytes:
            self._shared.lobby.wait_for_room(self)
            return False
        return True

    def _can_receive(self) -> bool:
        """Whether the request that is being received can go on. A large one gets its room by and by, as its bytes come."""
        if self._filled < self._room:
            return True
        room = _room_for(self._frame_bytes, self._filled)
        if not self._has_room_for(room - self._room):
            return False
        self._hold(room - self._room)
        self._room = room
        return True

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._shared.traffic.held_bytes += size

    def _release(self, size: int) -> None:
        # After the connection is lost everything has been released already.
        size = min(size, self._held_bytes)
        self._held_bytes -= size
        self._shared.traffic.held_bytes -= size
        self._shared.lobby.room_was_made()

    def _work(self) -> None:
        """Start what can be started, and go on with what is there until that is nothing more."""
        while True:
            while self._queue and self._can_write and not self._transport.is_closing():
                overlaps = self._shared.dispatcher.overlaps(self._queue[0])
                if self._slots and (self._has_lone_request or not overlaps):
                    break
                self._has_lone_request = not overlaps
                self._start(self._queue.popleft())
            if self._queue or self._frame is not None or not self._has_backlog() or self._is_closing or self._is_full():
                break
            rest, self._rest = self._rest, b""
            self._cut(memoryview(rest))
            if not self._queue:
                break
        self._watch_reading()

    def _start(self, frame: bytearray) -> None:
        try:
            answer = self._shared.dispatcher.dispatch(frame, self.client)
        except Exception as error:  # noqa: BLE001  the connection pays for what its request does, the listener goes on
            self._fail(error)
            return
        if isinstance(answer, PendingResponse):
            slot = answer
        else:
            slot = PendingResponse()
            slot.settle(answer)
        slot.request_bytes = len(frame)
        self._slots.append(slot)
        if not slot.is_settled:
            slot.on_settled = self._answered
        elif slot.error is not None:
            self._fail(slot.error)
        else:
            self._send()

    def _answered(self, slot: PendingResponse) -> None:
        if self._transport.is_closing():
            return
        if slot.error is not None:
            self._fail(slot.error)
        elif self._is_about_to_send:
            pass
        elif len(self._slots) == 1 and not self._queue and not self._rest:
            self._send()
            if not self._is_reading:
                self._watch_reading()
        else:
            # Answers that come in the same turn of the loop, as those of one commit do, leave in one write; and what waits
            # begins when those who were answered with this one have been told as well.
            self._is_about_to_send = True
            self._loop.call_soon(self._send_and_go_on)

    def _send_and_go_on(self) -> None:
        self._is_about_to_send = False
        if not self._transport.is_closing():
            self._send()
            self._work()

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._end("fault", f"a request of {self.client.host} was given up before it was answered")
        elif isinstance(error, TailraceError):
            self._end("bad_request", f"{self.client.host} sent something that can't be answered: {error}")
        else:
            self._shared.traffic.handler_faults += 1
            _log.error("a request of %s failed", self.client.host, exc_info=error)
            self._end("fault", f"a request of {self.client.host} failed in a way that nobody foresaw")

    def _send(self) -> None:
        """Send the answers whose turn it is."""
        slots = self._slots
        parts: list[Buffer] = []
        done_bytes = 0
        while slots and slots[0].is_settled:
            slot = slots.popleft()
            done_bytes += slot.request_bytes
            if slot.reply is not None:
                parts += slot.reply
            if slot.held is not None:
                self._unsent.append(slot.held)
        self._release(done_bytes)
        if parts:
            self._last_byte_at = self._loop.time()
            if len(parts) == 1:
                self._shared.traffic.bytes_out += len(parts[0])
                self._transport.write(parts[0])
            else:
                self._shared.traffic.bytes_out += sum(map(len, parts))
                self._transport.writelines(parts)
        if self._unsent:
            # In the next turn of the loop, when it has been tried to send all.
            self._loop.call_soon(self._sent)
        if not slots and not self._queue and self._is_closing:
            self._transport.close()

    def _sent(self) -> None:
        if self._can_write:
            self._all_sent()

    def _all_sent(self) -> None:
        for answer in self._unsent:
            answer.close()
        self._unsent.clear()

    def _watch_reading(self) -> None:
        """Read while there is room for what may come."""
        if self._transport.is_closing():
            return
        if self._frame is not None:
            wanted = self._can_receive()
        else:
            wanted = self._can_write and not self._is_closing and not self._has_backlog() and not self._is_full()
        if wanted != self._is_reading:
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _has_backlog(self) -> bool:
        return len(self._rest) >= _SIZE_BYTES

    def poke(self) -> None:
        """Look again whether there is room; another connection may have made it."""
        if not self._transport.is_closing():
            self._work()

    def _end(self, reason: str, message: str, *, now: bool = False) -> None:
        if self._transport.is_closing():
            return
        self._is_closing = True
        self._shared.traffic.closed[reason] += 1
        self._shared.lobby.report(message)
        if now:
            self._transport.abort()
        else:
            self._transport.close()


def _room_for(size: int, have: int) -> int:
    """How much of a request to make room for when so much of it is there. Whoever announces a lot must send it first."""
    if have < _FIRST_BYTES // 2:
        return min(size, _FIRST_BYTES)
    return min(size, max(_SECOND_BYTES, 2 * have))
