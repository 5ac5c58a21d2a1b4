"""One server process: opens the folder, serves it, and shuts down cleanly.

Listeners call the broker, and the broker calls the store; only this module knows all three. The addresses are bound first,
because that fails most often; then the folder is opened in a thread while the Kafka modules are imported. HTTP and SQL, which
not every server needs, are loaded on the first request.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.settings import BrokerSettings
from tailrace.kafka.cluster import KafkaSettings
from tailrace.log.kernel_hints import keep_freed_memory
from tailrace.model.address import Address
from tailrace.model.clock import Clock
from tailrace.model.commit import Durability
from tailrace.model.errors import ConfigurationError, StorageFailedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.server_credentials import CHILD_CERTIFICATE, ServerCredentials
from tailrace.oidc_keys import downloaded_keys
from tailrace.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from tailrace.http.listener import HttpListener
    from tailrace.tls.acceptor import TlsAcceptor
    from tailrace.tls.certificate import ServerCertificate

_FINISH_REQUESTS_SECONDS = 4
_BACKLOG = 1024
_OTHER_FILES = 1024
"""Open files that are reserved for the store and others that are no connections. Of a lower limit, half is reserved."""
_LEAST_FILES = 128
_COMMAND_LENGTH = 200
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")

_USE_SSL = "set security.protocol to SSL or SASL_SSL there"
_USE_HTTPS = "use https:// there"
_PLAIN_PROBLEM = (
    b'{"type":"about:blank","title":"Bad Request","status":400,"detail":"this listener speaks TLS; use https://",'
    b'"retriable":false,"outcome":"failed"}'
)
_ANSWER_IN_PLAIN_TEXT = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_PLAIN_PROBLEM), _PLAIN_PROBLEM)
)

_logger = logging.getLogger(__name__)


class Ready(NamedTuple):
    """Describes a server that accepts requests."""

    http: Address
    kafka: Address
    open_seconds: float
    replayed_bytes: int
    """Log bytes that were read again because they were newer than the saved index."""
    is_tls: bool = False


class Server:
    """A server from its start to its end. `on_ready` is called when it accepts requests, `on_stop` when it begins to stop.

    `secret` is what processes beside it get in with, if those that it starts itself are not the only ones.
    """

    def __init__(
        self,
        *,
        folder: Path,
        http: Address,
        kafka: Address,
        advertise: Address | None,
        durability: Durability,
        broker: BrokerSettings,
        kafka_settings: KafkaSettings,
        security: SecuritySettings,
        limits: Limits,
        clock: Clock,
        accept_loss_after: int | None = None,
        secret: str | None = None,
        on_ready: Callable[[Ready], None],
        on_stop: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._http = http
        self._kafka = kafka
        self._advertise = advertise
        self._durability = durability
        self._broker = broker
        self._kafka_settings = kafka_settings
        self._security = security
        self._limits = limits
        self._clock = clock
        self._accept_loss_after = accept_loss_after
        self._secret = secret
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._certificate: ServerCertificate | None = None
        self._stopping = asyncio.Event()
        self._failure: TailraceError | None = None

    async def run(self) -> TailraceError | None:
        """Serve until SIGTERM, SIGINT or a storage failure, which is returned."""
        # All files in the folder are readable by their owner only, also those that libraries write.
        os.umask(0o077)
        if self._security.tls_certificate is not None:
            from tailrace.tls.certificate import ServerCertificate

            self._certificate = ServerCertificate(self._security)
        collect_garbage_rarely()
        keep_freed_memory()
        self._limits, backlog = _within_open_files(self._limits)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        with _bind(self._http, "--http", backlog) as http, _bind(self._kafka, "--kafka", backlog) as kafka:
            opening = loop.run_in_executor(None, self._open_store, loop)
            # Imported here, because it takes as long as opening the folder and the two overlap.
            import tailrace.kafka.apis  # noqa: F401

            opened = await opening
            try:
                if not self._stopping.is_set():
                    await self._serve(opened, http, kafka)
            finally:
                await loop.run_in_executor(None, opened.store.close)
        return self._failure

    async def _serve(self, opened: "_Opened", http: socket.socket, kafka: socket.socket) -> None:
        from tailrace.capture_processes import CaptureProcesses
        from tailrace.http.health import ServerStatus
        from tailrace.http.on_demand import HttpOnDemand
        from tailrace.kafka.apis import create_authentication, create_dispatcher
        from tailrace.kafka.cluster import Cluster
        from tailrace.kafka.listener import KafkaListener
        from tailrace.kafka.metrics import KafkaCollector, Traffic
        from tailrace.shadow_processes import ShadowProcesses
        from tailrace.sql.lazy_engine import LazySqlEngine

        limits = self._limits
        broker = Broker(opened.store, self._clock, limits, self._broker, self._security)
        keys = downloaded_keys(self._security)
        if keys is not None:
            broker.oidc.read_keys_from(keys)
        await broker.start()
        try:
            sql = await LazySqlEngine.open(self._folder, broker, self._clock, limits)
        except BaseException:
            await broker.close()
            raise
        http_address = Address(self._http.host, http.getsockname()[1])
        kafka_address = Address(self._kafka.host, kafka.getsockname()[1])
        cluster = Cluster(broker.cluster_id, self._advertise or kafka_address, self._durability)
        status = ServerStatus(self._durability, self._clock, lambda: self._failure, str(self._advertise or kafka_address))
        traffic = Traffic()
        dispatcher = create_dispatcher(broker, cluster, self._kafka_settings, traffic, self._clock, limits)

        name_of_certificate = self._name_of_certificate()
        authentication = create_authentication(
            broker, self._security, self._clock, limits, name_of_certificate=name_of_certificate
        )
        is_tls = self._certificate is not None

        def serve_http() -> "HttpListener":
            from tailrace.http.app import create_app
            from tailrace.http.listener import HttpListener

            on_loopback = ip_address(http.getsockname()[0]).is_loopback
            app = create_app(
                broker,
                status,
                limits,
                [KafkaCollector(traffic)],
                engine=sql,
                on_loopback=on_loopback,
                is_tls=is_tls,
                name_of_certificate=name_of_certificate,
            )
            tls = self._tls_of(http, _USE_HTTPS, _ANSWER_IN_PLAIN_TEXT)
            return HttpListener(app, http, limits, _FINISH_REQUESTS_SECONDS, app.fast_requests, tls)

        listeners = (
            HttpOnDemand(http, serve_http),
            KafkaListener(
                dispatcher,
                kafka,
                traffic,
                limits,
                _FINISH_REQUESTS_SECONDS,
                authentication=authentication,
                tls=self._tls_of(kafka, _USE_SSL),
            ),
        )
        url = f"{'https' if is_tls else 'http'}://{_reachable(http_address)}"
        broker.shadows.own_addresses = (kafka_address, *(() if self._advertise is None else (self._advertise,)))
        if self._secret is not None:
            broker.authenticator.server_secret = self._secret
        credentials = self._credentials(broker.authenticator.server_secret)
        children = (
            CaptureProcesses(broker.sources, url, self._clock, credentials),
            ShadowProcesses(broker.shadows, url, status.kafka, broker.cluster_id, self._durability, self._clock, credentials),
        )
        try:
            if self._certificate is not None:
                self._certificate.start()
            for listener in listeners:
                await listener.start()
            for child in children:
                child.start()
            self._on_ready(Ready(http_address, kafka_address, opened.seconds, opened.store.stats().replayed_bytes, is_tls))
            await self._stopping.wait()
        finally:
            # SQL and the broker are closed first: that completes their requests and wakes those that wait, so that the
            # listeners can send all answers before they close their connections.
            await asyncio.gather(*(child.close() for child in children))
            await sql.close()
            await broker.close()
            await asyncio.gather(*(listener.stop() for listener in listeners))
            if self._certificate is not None:
                await self._certificate.close()

    def _tls_of(self, bound: socket.socket, advice: str, plain_answer: bytes = b"") -> "TlsAcceptor | None":
        """Return what accepts the connections of a listener, if it speaks TLS."""
        if self._certificate is None:
            return None
        from tailrace.tls.acceptor import TlsAcceptor

        return TlsAcceptor(bound, self._certificate, self._limits, advice=advice, plain_answer=plain_answer)

    def _credentials(self, secret: str) -> ServerCredentials | None:
        """Return what processes that the server starts get in with."""
        security = self._security
        is_asked = security.authentication == "required"
        if not is_asked and security.tls_certificate is None:
            return None
        certificate = None if security.tls_certificate is None else str(Path(security.tls_certificate).absolute())
        mechanism = _mechanism(security) if is_asked else None
        return ServerCredentials(secret if is_asked else None, certificate, mechanism, self._child_certificate())

    def _child_certificate(self) -> str | None:
        """Make a certificate for this run, if clients get no connection without one. It names nobody."""
        if self._certificate is None or self._security.client_certificates != "required":
            return None
        from tailrace.tls.authority import make_nameless_certificate

        file = self._folder.absolute() / CHILD_CERTIFICATE
        self._certificate.trust(make_nameless_certificate(file))
        return str(file)

    def _name_of_certificate(self) -> Callable[[Mapping[str, Any]], str | None] | None:
        if self._security.client_certificates == "off":
            return None
        from tailrace.tls.names import name_of_certificate

        return partial(name_of_certificate, settings=self._security)

    def _open_store(self, loop: asyncio.AbstractEventLoop) -> "_Opened":
        def fail(error: TailraceError) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        began = self._clock.monotonic()
        try:
            store = EmbeddedStore.open(
                self._folder,
                durability=self._durability,
                clock=self._clock,
                limits=self._limits,
                on_failure=fail,
                accept_loss_after=self._accept_loss_after,
            )
        except StorageFailedError as error:
            raise StorageFailedError(f"{error}{_folder_advice(self._folder, error.__cause__)}") from error
        return _Opened(store, self._clock.monotonic() - began)

    def _fail(self, error: TailraceError) -> None:
        self._failure = error
        self._stop()

    def _stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._on_stop()


def _reachable(address: Address) -> Address:
    """Return an address at which this machine reaches a listener, which may listen on all its addresses."""
    host = ip_address(socket.gethostbyname(address.host)) if ":" not in address.host else ip_address(address.host)
    if not host.is_unspecified:
        return address
    return Address("::1" if host.version == 6 else "127.0.0.1", address.port)


def collect_garbage_rarely() -> None:
    """Make the garbage collector look for reference cycles less often than by default.

    The index and the commits in flight are many small objects without cycles. Scanning them every 700 allocations costs a third
    of the appends per second.
    """
    gc.set_threshold(10_000, 20, 20)


def _within_open_files(limits: Limits) -> tuple[Limits, int]:
    """Raise the limit of open files as far as possible. Return the limits that fit into it, and the backlog of the listeners.

    A store that can't open a file has to stop, so connections are rejected first. A burst of connections is accepted before any
    of them can be rejected, so the backlog, which bounds the burst, has to fit too.
    """
    wanted = 2 * (limits.connections + _BACKLOG) + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
        soft = max(soft, allowed)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits, _BACKLOG
    if soft < _LEAST_FILES:
        raise ConfigurationError(
            f"the limit of open files is {soft}, and a server needs at least {_LEAST_FILES}; raise it"
            " (`ulimit -n`, or LimitNOFILE of systemd)"
        )
    kept = min(_OTHER_FILES, soft // 2)
    backlog = min(_BACKLOG, (soft - kept) // 8)
    connections = min(limits.connections, (soft - kept) // 2 - backlog)
    _logger.warning(
        "the limit of open files is %d: %d are reserved for the store, and each listener rejects connections beyond %d."
        " Raise the limit (`ulimit -n`, or LimitNOFILE of systemd) to %d for as many as `connections` allows",
        soft,
        kept,
        connections,
        wanted,
    )
    segments = min(limits.open_segments, kept // 8)
    return msgspec.structs.replace(limits, connections=connections, open_segments=segments), backlog


def _mechanism(security: SecuritySettings) -> str | None:
    """Return the SASL mechanism of processes that the server starts: one that it offers, and that needs nobody else."""
    may_send_secrets = security.tls_certificate is not None or security.plain_without_tls
    offered = [one for one in _MECHANISMS if one in security.sasl_mechanisms and (may_send_secrets or one != "PLAIN")]
    return offered[0] if offered else None


class _Opened(NamedTuple):
    store: EmbeddedStore
    seconds: float


def _folder_advice(folder: Path, cause: BaseException | None) -> str:
    """Return what to do about a data folder that can't be opened, if the cause says it."""
    if isinstance(cause, PermissionError):
        return f". Let the user {os.geteuid()} write there, or choose another folder with --data"
    if isinstance(cause, NotADirectoryError | FileNotFoundError) and cause.filename == str(folder):
        return ". No folder can be created there; choose another one with --data"
    return ""


def _bind(address: Address, flag: str, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=backlog)
    except OSError as error:
        # `create_server` appends the address to the system's message, which has it already here.
        why = (error.strerror or str(error)).partition(" (while")[0]
        advice = f"; {_how_to_stop_listener(address.port)}, or" if error.errno == errno.EADDRINUSE else ";"
        raise ConfigurationError(f"can't listen on {address}: {why}{advice} choose another with {flag}") from error


def _how_to_stop_listener(port: int) -> str:
    """Return how to stop the process that listens on a port. Processes of other users can't be inspected."""
    listening = "0A"
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path("/proc/net", table).read_text().splitlines()[1:]]
            sockets |= {f"socket:[{row[9]}]" for row in rows if row[3] == listening and row[1].endswith(f":{port:04X}")}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"stop the process that listens there with `kill {process.name}` ({command[:_COMMAND_LENGTH]})"
    return "stop the process that listens there"
