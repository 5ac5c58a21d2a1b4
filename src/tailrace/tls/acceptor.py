"""Accepts the connections of a listener that speaks TLS.

A client has a bounded time for its handshake, and one address a bounded number of them at a time; both count against the limits
of connections. The first byte of a client tells whether it speaks TLS at all: one that does not is told so, as far as its
protocol allows, and named in the log with what to set.
"""

import asyncio
import errno
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from socket import MSG_PEEK, SHUT_WR, socket

from tailrace.model.limits import Limits
from tailrace.tls.certificate import ServerCertificate
from tailrace.tls.paced import paced

_log = logging.getLogger(__name__)

_TLS_BEGIN = b"\x16"
"""The first byte of every handshake. No request of Kafka or HTTP begins with it."""
_PAUSE_SECONDS = 0.5
"""How long nothing is accepted when the system has no file or memory for more."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CLOSE_SECONDS = 30.0
"""How long a client has to take the last part of what was sent when the server closes a connection."""
_LINGER_SECONDS = 1.0
_UNREAD_BYTES = 64 * 1024

MakeProtocol = Callable[[], asyncio.BaseProtocol]


class TlsAcceptor:
    """`plain_answer` is sent to clients that speak no TLS, and `advice` says what they should have set."""

    def __init__(
        self, bound: socket, certificate: ServerCertificate, limits: Limits, *, advice: str, plain_answer: bytes = b""
    ) -> None:
        self._bound = bound
        self._certificate = certificate
        self._limits = limits
        self._advice = advice
        self._plain_answer = plain_answer
        self._handshakes: Counter[str] = Counter()
        """Handshakes under way, by address."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None

    def start(
        self,
        make_protocol: MakeProtocol,
        *,
        open_connections: Callable[[], int],
        admits: Callable[[str, float], bool],
        refused: Callable[[str, str], None],
    ) -> None:
        """Begin to accept. Each client whose handshake succeeds gets a protocol.

        `open_connections` counts those whose handshake has ended, `admits` says whether an address may open another one at a
        time, and `refused` is called with the name of a limit or another reason, and with a message for the log.
        """
        self._make_protocol = lambda: paced(make_protocol(), self._limits.unsent_seconds)
        self._open_connections = open_connections
        self._admits = admits
        self._refused = refused
        self._bound.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more, and give up handshakes under way."""
        asyncio.get_running_loop().remove_reader(self._bound)
        if self._resuming is not None:
            self._resuming.cancel()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _listen(self) -> None:
        self._resuming = None
        asyncio.get_running_loop().add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        """Accept one connection. If more wait, the event loop calls again in its next turn, after what else is ready."""
        try:
            accepted, address = self._bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _log.error("no connection can be accepted for %g s: %s", _PAUSE_SECONDS, error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._bound)
            self._resuming = loop.call_later(_PAUSE_SECONDS, self._listen)
            return
        self._begin(accepted, str(address[0]))

    def _begin(self, accepted: socket, host: str) -> None:
        limit = self._exceeded_limit(host)
        if limit:
            accepted.close()
            self._refused(limit, f"{host} was rejected: limit {limit} reached ({getattr(self._limits, limit)})")
            return
        accepted.setblocking(False)
        self._handshakes[host] += 1
        task = asyncio.get_running_loop().create_task(self._welcome(accepted, host))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(done, host))

    def _end(self, task: "asyncio.Task[None]", host: str) -> None:
        self._tasks.discard(task)
        self._handshakes[host] -= 1
        if not self._handshakes[host]:
            del self._handshakes[host]
        if not task.cancelled() and task.exception() is not None:
            _log.error("a TLS handshake of %s failed", host, exc_info=task.exception())

    def _exceeded_limit(self, host: str) -> str:
        """Return the name of the limit that another handshake of an address would exceed, or nothing."""
        limits = self._limits
        if self._open_connections() + len(self._tasks) >= limits.connections:
            return "connections"
        if self._handshakes[host] >= limits.connections_per_address:
            return "connections_per_address"
        if not self._admits(host, asyncio.get_running_loop().time()):
            return "new_connections_per_second"
        return ""

    async def _welcome(self, accepted: socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.tls_handshake_seconds
        try:
            begin = await self._first_byte(accepted)
            if begin == _TLS_BEGIN:
                left = max(0.001, deadline - loop.time())
                await loop.connect_accepted_socket(
                    self._make_protocol,
                    accepted,
                    ssl=self._certificate.context,
                    ssl_handshake_timeout=left,
                    ssl_shutdown_timeout=_CLOSE_SECONDS,
                )
            elif begin:
                self._refused("wrong_protocol", f"{host} speaks plain text to this listener, which speaks TLS; {self._advice}")
                await self._answer_in_plain_text(accepted)
            else:
                # Those who look whether somebody listens here say nothing.
                accepted.close()
        except OSError as error:
            accepted.close()
            self._refused("tls_handshake", f"the TLS handshake of {host} failed: {explain_handshake(error)}")
        except asyncio.CancelledError:
            accepted.close()
            raise

    async def _first_byte(self, accepted: socket) -> bytes:
        """Return the first byte that the client sends, which stays to be read; nothing if it sends none."""
        try:
            return accepted.recv(1, MSG_PEEK)
        except BlockingIOError:
            pass
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        loop.add_reader(accepted, _settle, arrived)
        try:
            async with asyncio.timeout(self._limits.tls_handshake_seconds):
                await arrived
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"it sent nothing within {self._limits.tls_handshake_seconds} s") from None
        finally:
            loop.remove_reader(accepted)
        return accepted.recv(1, MSG_PEEK)

    async def _answer_in_plain_text(self, accepted: socket) -> None:
        loop = asyncio.get_running_loop()
        with accepted, suppress(OSError, TimeoutError):
            if not self._plain_answer:
                return
            async with asyncio.timeout(_LINGER_SECONDS):
                await loop.sock_sendall(accepted, self._plain_answer)
                accepted.shutdown(SHUT_WR)
                # What is left unread at the close would make the system take back the answer.
                while await loop.sock_recv(accepted, _UNREAD_BYTES):
                    pass


_TOO_OLD = "it offers no TLS 1.2 or 1.3, and older versions are not safe"
_REJECTED = "it rejects the server's certificate; check its CA file, and the name that it connects to"
_ADVICE_BY_REASON = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": 'it showed no certificate, and client_certificates is "required"',
    "UNSUPPORTED_PROTOCOL": _TOO_OLD,
    "VERSION_TOO_LOW": _TOO_OLD,
    "NO_SHARED_CIPHER": "it offers no cipher of the server: ECDHE with AES-GCM or ChaCha20",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of the server's certificate; give it that as CA file",
    "SSLV3_ALERT_BAD_CERTIFICATE": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the server's certificate has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": _TOO_OLD,
}


def explain_handshake(error: OSError) -> str:
    """Return why a handshake failed, in words of a person who can do something about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}; check client_ca"
    if isinstance(error, ssl.SSLError):
        return _ADVICE_BY_REASON.get(error.reason or "", error.reason or str(error))
    if isinstance(error, ConnectionAbortedError):
        return "it did not finish it in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "it closed the connection; perhaps it does not trust the server's certificate"
    return error.strerror or str(error)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
