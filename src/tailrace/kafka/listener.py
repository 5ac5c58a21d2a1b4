"""Accepts Kafka clients on a socket, bounds the number and the rate of their connections, and closes them all on a stop."""

import asyncio
import logging
from collections import Counter
from socket import socket
from typing import TYPE_CHECKING

from tailrace.kafka.connection import KafkaConnection, SharedContext
from tailrace.kafka.dispatch import Dispatcher
from tailrace.kafka.metrics import Traffic
from tailrace.kafka.request_reader import SCRATCH_BYTES
from tailrace.kafka.sasl import KafkaAuthentication
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from tailrace.tls.acceptor import TlsAcceptor

_log = logging.getLogger(__name__)

_INSPECTION_SECONDS = 1.0
_LOG_LINES_PER_INSPECTION = 20


class KafkaListener:
    def __init__(
        self,
        dispatcher: Dispatcher,
        bound: socket,
        traffic: Traffic,
        limits: Limits,
        stop_seconds: float,
        *,
        authentication: KafkaAuthentication | None = None,
        tls: "TlsAcceptor | None" = None,
    ) -> None:
        """Without `authentication` everybody may send requests. `tls` accepts the connections of a listener that speaks TLS."""
        self._bound = bound
        self._tls = tls
        self._limits = limits
        self._traffic = traffic
        self._stop_seconds = stop_seconds
        self.registry = ConnectionRegistry(traffic, limits)
        scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._shared = SharedContext(dispatcher, limits, traffic, scratch, self.registry, authentication)
        self._server: asyncio.Server | None = None
        self._inspection: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._server = await loop.create_server(self._accept, sock=self._bound)
        else:
            # Counted apart from connections, so that handshakes that fail count against their address too.
            attempts = ConnectionRate(self._limits)
            self._tls.start(
                self._accept,
                open_connections=lambda: len(self.registry.connections),
                admits=attempts.admits,
                refused=self._refused,
            )
        self._inspection = loop.call_later(_INSPECTION_SECONDS, self._inspect, loop)

    async def stop(self) -> None:
        """Take no new request, answer those in flight, and close; after `stop_seconds`, abort what is left."""
        if self._inspection is not None:
            self._inspection.cancel()
        if self._server is not None:
            self._server.close()
        if self._tls is not None:
            self._tls.close()
        drained = [connection.drain() for connection in self.registry.connections]
        if drained:
            await asyncio.wait(drained, timeout=self._stop_seconds)
        for connection in tuple(self.registry.connections):
            connection.abort()

    def _accept(self) -> KafkaConnection:
        self._traffic.accepted += 1
        return KafkaConnection(self._shared, self._traffic.accepted)

    def _refused(self, reason: str, message: str) -> None:
        self._traffic.closed[reason] += 1
        self.registry.report(message)

    def _inspect(self, loop: asyncio.AbstractEventLoop) -> None:
        self.registry.inspect(loop.time())
        self._inspection = loop.call_later(_INSPECTION_SECONDS, self._inspect, loop)


class ConnectionRegistry:
    """All open connections of a listener, and those of them that wait for memory to read their next request."""

    def __init__(self, traffic: Traffic, limits: Limits) -> None:
        self.connections: set[KafkaConnection] = set()
        self._traffic = traffic
        self._limits = limits
        self._by_host: Counter[str] = Counter()
        self._rate = ConnectionRate(limits)
        self._waiting: set[KafkaConnection] = set()
        self._wake_is_scheduled = False
        self._log_lines_left = _LOG_LINES_PER_INSPECTION

    def opened(self, connection: KafkaConnection) -> str:
        """Add a connection. Return the name of the limit that it exceeds, or an empty string if it may stay."""
        host = connection.client.host
        self.connections.add(connection)
        self._by_host[host] += 1
        self._traffic.open += 1
        if len(self.connections) > self._limits.connections:
            return "connections"
        if self._by_host[host] > self._limits.connections_per_address:
            return "connections_per_address"
        if not self._rate.admits(host, asyncio.get_running_loop().time()):
            return "new_connections_per_second"
        return ""

    def closed(self, connection: KafkaConnection) -> None:
        host = connection.client.host
        self.connections.discard(connection)
        self._waiting.discard(connection)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._traffic.open -= 1

    def wait_for_memory(self, connection: KafkaConnection) -> None:
        """Tell the connection when memory is released."""
        self._waiting.add(connection)

    def memory_was_released(self) -> None:
        if self._waiting and not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake)

    def inspect(self, now: float) -> None:
        """Close connections that have been idle or slow for too long."""
        self._log_lines_left = _LOG_LINES_PER_INSPECTION
        self._rate.forget_idle(now)
        for connection in tuple(self.connections):
            connection.inspect(now)

    def report(self, message: str) -> None:
        """Log why the server closes a connection."""
        # A client that is closed again and again must not fill the disk with log lines; the metrics count all of them.
        if self._log_lines_left > 0:
            self._log_lines_left -= 1
            _log.warning("closing a Kafka connection: %s", message)

    def _wake(self) -> None:
        self._wake_is_scheduled = False
        waiting, self._waiting = self._waiting, set()
        for connection in waiting:
            connection.memory_was_released()


class ConnectionRate:
    """Bounds how fast one address opens connections, because opening and closing costs the server more than the client.

    A token bucket: an address may open `connections_per_address` at once, as a machine full of consumers does when it starts,
    and after that `new_connections_per_second`.
    """

    def __init__(self, limits: Limits) -> None:
        self._rate = limits.new_connections_per_second
        self._burst = limits.connections_per_address
        self._max_hosts = limits.connections
        self._spent: dict[str, tuple[float, float]] = {}
        """By address: connections that count against it, and the time at which they did. The count falls as time passes."""

    def admits(self, host: str, now: float) -> bool:
        """Count one more connection of the address and return true, unless it has opened too many."""
        if host not in self._spent and len(self._spent) >= self._max_hosts:
            self.forget_idle(now)
            if len(self._spent) >= self._max_hosts:
                return False
        spent = self._spent_by(host, now) + 1
        if spent > self._burst:
            return False
        self._spent[host] = spent, now
        return True

    def forget_idle(self, now: float) -> None:
        """Forget addresses whose connections do not count any more."""
        for host in [host for host in self._spent if not self._spent_by(host, now)]:
            del self._spent[host]

    def _spent_by(self, host: str, now: float) -> float:
        spent, then = self._spent.get(host, (0.0, now))
        return max(0.0, spent - (now - then) * self._rate)
