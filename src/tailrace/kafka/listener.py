"""Accepts Kafka clients on a socket, keeps their number within bounds, and ends them all on a stop."""

import asyncio
import logging
from collections import Counter
from socket import socket

from tailrace.kafka.connection import SCRATCH_BYTES, KafkaConnection, SharedContext
from tailrace.kafka.dispatch import Dispatcher
from tailrace.kafka.metrics import Traffic
from tailrace.model.limits import Limits

_log = logging.getLogger(__name__)

_INSPECTION_SECONDS = 1.0
_LINES_PER_INSPECTION = 20


class KafkaListener:
    def __init__(self, dispatcher: Dispatcher, bound: socket, traffic: Traffic, limits: Limits, stop_seconds: float) -> None:
        self._bound = bound
        self._traffic = traffic
        self._limits = limits
        self._stop_seconds = stop_seconds
        self._shared = SharedContext(dispatcher, limits, traffic, memoryview(bytearray(SCRATCH_BYTES)), self)
        self._connections: set[KafkaConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._rate = ConnectionRate(limits)
        self._crowded: set[KafkaConnection] = set()
        self._making_way = False
        self._lines_left = _LINES_PER_INSPECTION
        self._server: asyncio.Server | None = None
        self._inspection: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=self._bound)
        self._inspection = loop.call_later(_INSPECTION_SECONDS, self._inspect, loop)

    async def stop(self) -> None:
        """Take no new request, send the answers of those in flight, and close; after `stop_seconds` by force."""
        if self._inspection is not None:
            self._inspection.cancel()
        if self._server is not None:
            self._server.close()
        drained = [connection.finish() for connection in self._connections]
        if drained:
            await asyncio.wait(drained, timeout=self._stop_seconds)
        for connection in tuple(self._connections):
            connection.abort()

    def opened(self, connection: KafkaConnection) -> str:
        host = connection.client.host
        self._connections.add(connection)
        self._by_host[host] += 1
        self._traffic.open += 1
        if len(self._connections) > self._limits.connections:
            return "connections"
        if self._by_host[host] > self._limits.connections_per_address:
            return "connections_per_address"
        if not self._rate.admits(host, asyncio.get_running_loop().time()):
            return "new_connections_per_second"
        return ""

    def closed(self, connection: KafkaConnection) -> None:
        host = connection.client.host
        self._connections.discard(connection)
        self._crowded.discard(connection)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._traffic.open -= 1

    def wait_for_room(self, connection: KafkaConnection) -> None:
        self._crowded.add(connection)

    def room_was_made(self) -> None:
        if self._crowded and not self._making_way:
            self._making_way = True
            asyncio.get_running_loop().call_soon(self._make_way)

    def _make_way(self) -> None:
        self._making_way = False
        crowded, self._crowded = self._crowded, set()
        for connection in crowded:
            connection.poke()

    def report(self, message: str) -> None:
        # A client that is closed again and again must not fill the disk with log lines; the metrics count them all.
        if self._lines_left > 0:
            self._lines_left -= 1
            _log.warning("closing a Kafka connection: %s", message)

    def _accept(self) -> KafkaConnection:
        self._traffic.accepted += 1
        return KafkaConnection(self._shared, self._traffic.accepted)

    def _inspect(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._lines_left = _LINES_PER_INSPECTION
        self._rate.forget_rested(now)
        for connection in tuple(self._connections):
            connection.inspect(now)
        self._inspection = loop.call_later(_INSPECTION_SECONDS, self._inspect, loop)


class ConnectionRate:
    def __init__(self, limits: Limits) -> None:
        self._rate = limits.new_connections_per_second
        self._at_a_stroke = limits.connections_per_address
        self._most_hosts = limits.connections
        self._spent: dict[str, tuple[float, float]] = {}
        """By address: connections that count against it, and when that was so. They wear off by and by."""

    def admits(self, host: str, now: float) -> bool:
        """Count one more connection of the address, unless there are too many."""
        if host not in self._spent and len(self._spent) >= self._most_hosts:
            self.forget_rested(now)
            if len(self._spent) >= self._most_hosts:
                return False
        spent = self._left(host, now) + 1
        if spent > self._at_a_stroke:
            return False
        self._spent[host] = spent, now
        return True

    def forget_rested(self, now: float) -> None:
        """Addresses whose connections have worn off need not be remembered."""
        for host in [host for host in self._spent if not self._left(host, now)]:
            del self._spent[host]

    def _left(self, host: str, now: float) -> float:
        spent, then = self._spent.get(host, (0.0, now))
        return max(0.0, spent - (now - then) * self._rate)
