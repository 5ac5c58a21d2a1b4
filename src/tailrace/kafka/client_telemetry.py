"""Metrics that Kafka's clients push (KIP-714), kept for Prometheus.

Each client learns one subscription: which metrics to push, how often and how large. What is kept is the last push of each
client, a number for each metric. Clients whose ids differ in numbers and UUIDs only are one in what is shown, so the number of
series depends on the programs that use the server, and not on how many of them run or how often they start.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID, uuid4

from crc32c import crc32c

from tailrace.kafka.cluster import KafkaSettings
from tailrace.kafka.dispatch import RequestContext
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    CorruptBatchError,
    InvalidRecordsError,
    InvalidRequestError,
    MessageTooLargeError,
    TailraceError,
    TelemetryThrottledError,
    TelemetryTooLargeError,
    UnknownSubscriptionError,
    UnsupportedCodecError,
)
from tailrace.model.limits import Limits
from tailrace.wire.compression import Compression, decompress
from tailrace.wire.message import NO_UUID
from tailrace.wire.messages.telemetry import PushTelemetryRequest
from tailrace.wire.otlp import ReadMetric, read_metrics

REQUESTED_METRICS = ("org.apache.kafka.",)
"""Prefixes of the names of metrics that clients push: all that are described in KIP-714, and those of the Java client."""
ACCEPTED_CODECS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_EARLY = 0.9
"""The part of the interval after which a push is not too early: clients and networks are not exact."""
_FORGOTTEN_INTERVALS = 3
_WAITING_PUSHES = 100
"""Pushes that wait to be decoded, one at a time."""
_LABEL_LENGTH = 100
_METRIC_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_VARYING = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9]+", re.ASCII)


class TelemetrySubscription(NamedTuple):
    id: int
    interval_ms: int
    metrics: tuple[str, ...]


class _Client:
    """One instance of a client, which may have many connections."""

    __slots__ = ("asked_at", "connection", "has_asked", "has_ended", "label", "metrics", "must_ask", "pushed_at", "seen_at")

    def __init__(self, label: str, connection: int, now: float) -> None:
        self.label = label
        self.connection = connection
        self.seen_at = now
        self.asked_at: float | None = None
        self.pushed_at: float | None = None
        self.must_ask = False
        """Whether the client was told that it has the wrong subscription, so that it may ask for it at once."""
        self.has_asked = False
        """Whether the client has asked for its subscription and pushed nothing since."""
        self.has_ended = False
        self.metrics: Mapping[str, ReadMetric] = {}


class ClientTelemetry:
    def __init__(self, clock: Clock, limits: Limits, settings: KafkaSettings) -> None:
        self._clock = clock
        self._limits = limits
        interval_ms = settings.telemetry_interval_seconds * 1000
        described = f"{REQUESTED_METRICS} {interval_ms}".encode()
        self.subscription = TelemetrySubscription(crc32c(described) & 0x7FFFFFFF, interval_ms, REQUESTED_METRICS)
        self.pushes: Counter[str] = Counter()
        """Pushes by their outcome: `accepted`, or the name of the error."""
        self.dropped = 0
        """Metrics that were pushed and not kept."""
        self._clients: dict[UUID, _Client] = {}
        """Those that were heard of last come last."""
        self._kept = 0
        """Metrics of all clients."""
        self._decoding = asyncio.Lock()
        self._waiting = 0

    @property
    def clients(self) -> int:
        """Return how many clients have pushed metrics that are still shown."""
        self._forget_silent()
        return sum(bool(client.metrics) for client in self._clients.values())

    def shown(self) -> dict[tuple[str, str], float]:
        """Return the metrics by client and name. Clients that are shown as one have the total of sums, else the greatest."""
        self._forget_silent()
        found: dict[tuple[str, str], float] = {}
        for client in self._clients.values():
            for name, metric in client.metrics.items():
                key = client.label, name
                before = found.get(key)
                if before is None:
                    found[key] = metric.value
                else:
                    found[key] = before + metric.value if metric.is_sum else max(before, metric.value)
        return found

    def subscribe(self, context: RequestContext, instance_id: UUID) -> UUID:
        """Return the id of the client, a new one if it has none, which is to push metrics from now on."""
        now = self._clock.monotonic()
        if instance_id == NO_UUID:
            instance_id = uuid4()
        client = self._client(context, instance_id, now)
        last = max((at for at in (client.asked_at, client.pushed_at) if at is not None), default=None)
        if not client.must_ask and self._is_early(last, now):
            raise self._throttled()
        client.must_ask = False
        client.asked_at = now
        client.has_asked = True
        return instance_id

    async def push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        """Keep the metrics that a client pushes in place of its earlier ones."""
        try:
            await self._push(context, request)
        except TailraceError as error:
            self.pushes[type(error).__name__] += 1
            raise
        self.pushes["accepted"] += 1

    async def _push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        if request.client_instance_id == NO_UUID:
            raise InvalidRequestError("the push names no client; ask for the subscription first")
        now = self._clock.monotonic()
        client = self._client(context, request.client_instance_id, now)
        if client.has_ended:
            raise InvalidRequestError("the client said before that it ends")
        if not (request.terminating or client.has_asked) and self._is_early(client.pushed_at, now):
            raise self._throttled()
        client.pushed_at = now
        client.has_asked = False
        if request.subscription_id != self.subscription.id:
            client.must_ask = True
            raise UnknownSubscriptionError(f"there is no subscription {request.subscription_id}; ask for the one in force")
        if request.compression_type not in (Compression.NONE, *ACCEPTED_CODECS):
            client.must_ask = True
            raise UnsupportedCodecError(f"unknown compression codec {request.compression_type}")
        self._check_size(len(request.metrics))
        if request.terminating:
            client.has_ended = True
            self._keep(client, {})
            return
        metrics = await self._decode(request)
        # Meanwhile the client may have ended, or been forgotten for another one.
        if self._clients.get(request.client_instance_id) is client and not client.has_ended:
            self._keep(client, metrics)

    async def _decode(self, request: PushTelemetryRequest) -> dict[str, ReadMetric]:
        if self._waiting >= _WAITING_PUSHES:
            raise self._throttled()
        self._waiting += 1
        try:
            async with self._decoding:
                return await asyncio.to_thread(self._decoded, request)
        finally:
            self._waiting -= 1

    def _decoded(self, request: PushTelemetryRequest) -> dict[str, ReadMetric]:
        try:
            data = decompress(request.compression_type, request.metrics, self._limits.telemetry_bytes)
        except MessageTooLargeError:
            raise self._too_large("more when decompressed") from None
        except CorruptBatchError as error:
            raise InvalidRecordsError("the metrics can't be decompressed") from error
        return {metric.name: metric for metric in read_metrics(data)}

    def _keep(self, client: _Client, pushed: Mapping[str, ReadMetric]) -> None:
        self._kept -= len(client.metrics)
        room = self._limits.client_metrics - self._kept
        kept: dict[str, ReadMetric] = {}
        for name, metric in pushed.items():
            if len(kept) < room and _METRIC_NAME.fullmatch(name) and name.startswith(REQUESTED_METRICS):
                kept[name] = metric
            else:
                self.dropped += 1
        client.metrics = kept
        self._kept += len(kept)

    def _client(self, context: RequestContext, instance_id: UUID, now: float) -> _Client:
        client = self._clients.pop(instance_id, None)
        if client is None:
            self._forget_silent()
            while len(self._clients) >= self._limits.telemetry_clients:
                self._forget(next(iter(self._clients)))
            client = _Client(_label(context.client_id), context.client.connection, now)
        self._clients[instance_id] = client
        client.seen_at = now
        if client.connection != context.client.connection:
            # As with Kafka, a client that connects anew asks anew.
            client.connection = context.client.connection
            client.must_ask = True
        return client

    def _forget_silent(self) -> None:
        oldest = self._clock.monotonic() - _FORGOTTEN_INTERVALS * self.subscription.interval_ms / 1000
        for instance_id, client in list(self._clients.items()):
            if client.seen_at > oldest:
                break
            self._forget(instance_id)

    def _forget(self, instance_id: UUID) -> None:
        client = self._clients.pop(instance_id)
        self._kept -= len(client.metrics)
        client.metrics = {}

    def _is_early(self, last: float | None, now: float) -> bool:
        return last is not None and now - last < _EARLY * self.subscription.interval_ms / 1000

    def _throttled(self) -> TelemetryThrottledError:
        return TelemetryThrottledError(f"the client may push its metrics every {self.subscription.interval_ms} ms; wait")

    def _check_size(self, size: int) -> None:
        if size > self._limits.telemetry_bytes:
            raise self._too_large(str(size))

    def _too_large(self, size: str) -> TelemetryTooLargeError:
        return TelemetryTooLargeError(f"the metrics have {size} bytes; telemetry_bytes allows {self._limits.telemetry_bytes}")


def _label(client_id: str | None) -> str:
    """Return a client id without what differs between the instances of a program."""
    return _VARYING.sub("*", (client_id or "")[:_LABEL_LENGTH])
