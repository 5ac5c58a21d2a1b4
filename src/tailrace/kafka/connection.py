"""One client's connection: requests are started as they arrive, and responses leave in the order of the requests.

A client that sends faster than it is answered is not read from until responses have been sent. A client that does not read its
responses gets no further request started. Both cost the server a bounded amount of memory, and `inspect` closes connections
that stay in such a state for too long. `request_reader` cuts bytes into requests.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from math import ceil
from socket import SO_SNDBUF, SOL_SOCKET
from typing import TYPE_CHECKING, cast

import msgspec

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.security.authentication import Login
from tailrace.kafka.dispatch import Dispatcher, KafkaClient, PendingResponse
from tailrace.kafka.metrics import Traffic
from tailrace.kafka.request_reader import RequestReader, UnreadableRequestError
from tailrace.kafka.sasl import KafkaAuthentication, KafkaSession
from tailrace.kafka.throttling import MeteredRequest
from tailrace.model.commit import Buffer
from tailrace.model.errors import QuotaExceededError, TailraceError
from tailrace.model.limits import KIB, Limits

if TYPE_CHECKING:
    from tailrace.kafka.listener import ConnectionRegistry

_log = logging.getLogger(__name__)

_PRESSED_SECONDS = 5
"""How long a client may take to send a request while memory is short, or read nothing of a response while others wait for the
memory that it holds."""

_LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
_LOOPBACK_SEND_BYTES = 512 * KIB
"""The send buffer of a connection from the same machine: its records are received while the processor's caches have them. The
system would let it grow to several megabytes, which distant clients need."""


class SharedContext(msgspec.Struct, frozen=True):
    """What all connections of a listener share."""

    dispatcher: Dispatcher
    limits: Limits
    traffic: Traffic
    scratch: memoryview
    registry: "ConnectionRegistry"
    authentication: KafkaAuthentication | None = None
    """`None` if everybody may send requests."""


class ConnectionState(Enum):
    SERVING = 1
    """Requests are read, started and answered."""
    DRAINING = 2
    """The server stops: requests in flight are answered, then the connection is closed. No other is started."""
    CLOSED = 3
    """Nothing is read or sent any more."""


# Members of an enum are slow to look up, and these are needed for each request.
_SERVING = ConnectionState.SERVING


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: SharedContext, number: int) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._state = _SERVING
        self._reader = RequestReader(shared, lambda: shared.registry.wait_for_memory(self), self._loop.time)
        self._is_reading = True
        """Whether the transport reads. It pauses while there is no memory for more."""
        self._pending: deque[PendingResponse] = deque()
        """Responses to the requests that have been started, in order."""
        self._unsent = _UnsentResponses()
        self._scheduled_send: asyncio.Handle | None = None
        self._opened_at = self._last_byte_at = self._loop.time()
        self._drained: asyncio.Future[None] | None = None
        self._session: KafkaSession | None = None
        self._throttle = shared.dispatcher.throttle
        self._muted: asyncio.TimerHandle | None = None
        """Ends the time in which nothing more is read and started, because the client has used more than its quota."""
        self._release: Callable[[], None] | None = None
        """Takes the connection from those that its user's quota counts."""
        self.client = KafkaClient("", number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client = KafkaClient(str(peer[0]) if peer else "", self._number)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes)
        if self.client.host in _LOOPBACK:
            with suppress(OSError):
                transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, _LOOPBACK_SEND_BYTES)
        if self._shared.authentication is not None:
            self._begin_session(self._shared.authentication)
        limit = self._shared.registry.opened(self)
        if not limit and (self._session is None or self._session.is_open):
            self._count()
        if limit:
            self._close(limit, f"{self.client.host} was rejected: limit {limit} reached ({getattr(self._limits, limit)})")

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = ConnectionState.CLOSED
        for pending in self._pending:
            pending.abandon()
        self._reader.close()
        self._unsent.release()
        if self._session is not None:
            self._session.close()
        if self._muted is not None:
            self._muted.cancel()
        if self._release is not None:
            self._release()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._shared.registry.closed(self)

    def get_buffer(self, sizehint: int) -> Buffer:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._shared.traffic.bytes_in += nbytes
        self._last_byte_at = self._loop.time()
        if self._state is not _SERVING:
            return
        try:
            has_requests = self._reader.received(nbytes)
        except UnreadableRequestError as error:
            self._close_unreadable(error)
            return
        if has_requests:
            self._start_requests()
        else:
            self._update_reading()

    def pause_writing(self) -> None:
        self._unsent.pause(self._loop.time(), self._transport.get_write_buffer_size())
        self._update_reading()

    def resume_writing(self) -> None:
        self._unsent.resume()
        self._start_requests()

    def inspect(self, now: float) -> None:
        """Close the connection if the client has been idle, or has sent or read too slowly, for too long."""
        limits = self._limits
        host = self.client.host
        ended = None if self._session is None else self._session.inspect(now - self._opened_at)
        is_pressed = self._shared.traffic.held_bytes > limits.held_request_bytes // 2
        request_seconds = min(_PRESSED_SECONDS, limits.request_seconds) if is_pressed else limits.request_seconds
        if ended is not None:
            self._close(*ended)
        elif self._reader.is_late(now, request_seconds):
            self._close("half_frame", f"{host} did not finish a request within {request_seconds} s")
        elif not self._reader.has_begun and now - self._opened_at > limits.request_seconds:
            self._close("no_request", f"{host} sent no request within {limits.request_seconds} s")
        elif self._unsent.is_paused_for(now, limits.unsent_seconds):
            self._close("slow_reader", f"{host} did not read its responses for {limits.unsent_seconds} s", abort=True)
        elif self._unsent.is_stalled(now, self._transport):
            self._close(
                "slow_reader",
                f"{host} read nothing of a response for {_PRESSED_SECONDS} s while others wait for its memory",
                abort=True,
            )
        elif not self._reader.in_flight and now - self._last_byte_at > limits.idle_connection_seconds:
            self._close("idle", f"{host} was idle for {limits.idle_connection_seconds} s")

    def drain(self) -> "asyncio.Future[None]":
        """Start no further request. The future is done when those in flight are answered and the connection is closed."""
        self._state = ConnectionState.DRAINING
        self._reader.drop_requests()
        self._drained = self._loop.create_future()
        if self._pending:
            self._update_reading()
        else:
            self._transport.close()
        return self._drained

    def abort(self) -> None:
        self._transport.abort()

    def memory_was_released(self) -> None:
        """Continue if there is memory now: another connection has released some."""
        if not self._transport.is_closing():
            self._start_requests()

    def _start_requests(self) -> None:
        """Start the requests that can be started, and parse what was received until nothing more can be done."""
        reader = self._reader
        requests = reader.requests
        while True:
            while requests and self._unsent.paused_at is None and self._muted is None and not self._transport.is_closing():
                is_exclusive = not self._shared.dispatcher.overlaps(requests[0])
                # The last one is enough to look at: an exclusive request is the only one that is being answered.
                if self._pending and (is_exclusive or self._pending[-1].is_exclusive):
                    break
                self._start(requests.popleft(), is_exclusive)
            if requests or not reader.unparsed or self._state is not _SERVING or not reader.can_parse_more():
                break
            try:
                reader.parse_more()
            except UnreadableRequestError as error:
                self._close_unreadable(error)
                return
            if not requests:
                break
        self._update_reading()

    def _begin_session(self, authentication: KafkaAuthentication) -> None:
        encryption = self._transport.get_extra_info("ssl_object")
        self._session = session = KafkaSession(
            authentication,
            self.client.host,
            is_encrypted=encryption is not None,
            certificate=None if encryption is None else encryption.getpeercert(),
            on_login=self._logged_in,
        )
        self.client = self.client._replace(principal=session.principal, session=session)
        if not session.is_open:
            self._reader.most_bytes = self._limits.unauthenticated_request_bytes

    def _count(self) -> None:
        """Count the connection, and close it if its user has as many as may be."""
        if self._throttle is None or self._release is not None:
            return
        try:
            self._release = self._throttle.quotas.hold(self.client.principal, None, "connections")
        except QuotaExceededError as error:
            self._close("quota", f"{self.client.host} was rejected: {error}")

    def _logged_in(self, login: Login) -> None:
        self.client = self.client._replace(principal=login.principal)
        self._reader.most_bytes = self._limits.request_bytes
        self._count()

    def _start(self, request: bytearray, is_exclusive: bool) -> None:
        session = self._session
        if session is not None and not session.is_open and (refusal := session.refusal(request)) is not None:
            self._close(*refusal)
            return
        try:
            response = self._shared.dispatcher.dispatch(request, self.client)
        except Exception as error:  # noqa: BLE001  the request costs its client the connection, and no other
            self._fail(error)
            return
        if isinstance(response, PendingResponse):
            pending = response
        else:
            pending = PendingResponse()
            pending.settle(response)
        pending.request_bytes = len(request)
        pending.is_exclusive = is_exclusive
        if self._throttle is not None and self._throttle.quotas.kinds:
            pending.metered = self._throttle.metered(request)
        self._pending.append(pending)
        if not pending.is_settled:
            pending.on_settled = self._settled
        elif pending.error is not None:
            self._fail(pending.error)
        else:
            self._send()

    def _settled(self, pending: PendingResponse) -> None:
        if self._transport.is_closing():
            return
        if pending.error is not None:
            self._fail(pending.error)
        elif self._scheduled_send is not None:
            pass
        elif self._reader.in_flight == 1 and not self._reader.unparsed:
            self._send()
            if not self._is_reading:
                self._update_reading()
        else:
            # Responses that are ready in the same turn of the loop, such as those of one commit, leave in one write. Waiting
            # requests start when the other connections of that commit have got their responses too.
            self._scheduled_send = self._loop.call_soon(self._send_and_continue)

    def _send_and_continue(self) -> None:
        self._scheduled_send = None
        if not self._transport.is_closing():
            self._send()
            self._start_requests()

    def _send(self) -> None:
        """Send the responses whose turn it is."""
        waiting = self._pending
        parts: list[Buffer] = []
        answered = 0
        request_bytes = 0
        while waiting and waiting[0].is_settled:
            pending = waiting.popleft()
            answered += 1
            request_bytes += pending.request_bytes
            if pending.metered is not None:
                self._charge(pending, pending.metered)
            if pending.response is not None:
                parts += pending.response
            if pending.held is not None:
                self._unsent.answers.append(pending.held)
        self._reader.release(answered, request_bytes)
        if parts:
            self._last_byte_at = self._loop.time()
            if len(parts) == 1:
                self._shared.traffic.bytes_out += len(parts[0])
                self._transport.write(parts[0])
            else:
                self._shared.traffic.bytes_out += sum(map(len, parts))
                self._transport.writelines(parts)
        if self._unsent.answers:
            if self._transport.get_write_buffer_size():
                # In the next turn of the loop, when the transport has tried to send everything.
                self._loop.call_soon(self._release_sent)
            else:
                self._unsent.release()
        if not waiting and self._state is ConnectionState.DRAINING:
            self._transport.close()
        if self._session is not None and self._session.failure:
            self._close("login_failed", f"{self.client.host} failed to authenticate: {self._session.failure}")

    def _charge(self, pending: PendingResponse, request: MeteredRequest) -> None:
        """Count what the client has used, and let it wait if that is more than its quota."""
        throttle = self._throttle
        wait = 0.0 if throttle is None else throttle.charge(request, pending.response, self.client.principal)
        if throttle is None or not wait:
            return
        if pending.response is not None:
            pending.response = throttle.with_time(request, pending.response, ceil(wait * 1000))
        until = self._loop.time() + wait
        if self._muted is None or self._muted.when() < until:
            if self._muted is not None:
                self._muted.cancel()
            self._muted = self._loop.call_at(until, self._unmute)
            self._update_reading()

    def _unmute(self) -> None:
        self._muted = None
        if not self._transport.is_closing():
            self._start_requests()

    def _release_sent(self) -> None:
        if self._unsent.paused_at is None:
            self._unsent.release()

    def _update_reading(self) -> None:
        """Pause or resume reading, depending on whether there is memory for more."""
        if self._transport.is_closing():
            return
        may_begin = self._unsent.paused_at is None and self._muted is None and self._state is _SERVING
        wanted = self._reader.wants_bytes(may_begin)
        if wanted != self._is_reading:
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _fail(self, error: BaseException) -> None:
        host = self.client.host
        if isinstance(error, asyncio.CancelledError):
            self._close("fault", f"a request of {host} was cancelled before it was answered")
        elif isinstance(error, TailraceError):
            self._close("bad_request", f"{host} sent a request that can't be answered: {error}")
        else:
            self._shared.traffic.handler_faults += 1
            _log.error("a request of %s failed", host, exc_info=error)
            self._close("fault", f"unexpected internal error in a request of {host}")

    def _close_unreadable(self, error: UnreadableRequestError) -> None:
        self._close(error.reason, f"{self.client.host} {error}", response=error.response)

    def _close(self, reason: str, message: str, *, response: bytes = b"", abort: bool = False) -> None:
        if self._transport.is_closing():
            return
        self._state = ConnectionState.CLOSED
        self._shared.traffic.closed[reason] += 1
        self._shared.registry.report(message)
        if response:
            self._transport.write(response)
        if abort:
            self._transport.abort()
        else:
            self._transport.close()


class _UnsentResponses:
    """Responses that were given to the transport, as long as the client has not read them."""

    __slots__ = ("_bytes", "_last_read_at", "answers", "paused_at")

    def __init__(self) -> None:
        self.answers: list[ReadAnswer] = []
        """They hold memory until the client has read them."""
        self.paused_at: float | None = None
        """Since when the transport has had too much to send to take more."""
        self._bytes = 0
        self._last_read_at = 0.0

    def pause(self, now: float, unsent_bytes: int) -> None:
        self.paused_at = self._last_read_at = now
        self._bytes = unsent_bytes

    def resume(self) -> None:
        self.paused_at = None
        self.release()

    def release(self) -> None:
        for answer in self.answers:
            answer.close()
        self.answers.clear()

    def is_paused_for(self, now: float, seconds: float) -> bool:
        return self.paused_at is not None and now - self.paused_at > seconds

    def is_stalled(self, now: float, transport: asyncio.Transport) -> bool:
        """Return whether others wait for the memory of these responses and the client has read nothing of them for a while."""
        if self.paused_at is None or not self.answers:
            return False
        unsent_bytes = transport.get_write_buffer_size()
        if unsent_bytes < self._bytes:
            self._bytes = unsent_bytes
            self._last_read_at = now
        return self.answers[0].is_pressed and now - self._last_read_at > _PRESSED_SECONDS
