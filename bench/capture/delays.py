"""How late rows that are inserted one by one, at a steady rate, arrive at a Kafka client that waits at the end of a topic."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench.audit import AuditFailure
from bench.capture.orders import Orders
from bench.capture.sender import SendOrders, SentOrders
from bench.capture.side import ChangeReader
from bench.worker_process import WorkerProcess
from bench.workspace import Workspace

PER_SECOND = 1_000
_ARRIVE_SECONDS = 30.0
_FIRST_ID = 1 << 40
"""Where the ids of rows begin that are inserted at a steady rate."""

_Sender = WorkerProcess[SendOrders, SentOrders]


class Delays(NamedTuple):
    seconds: Sequence[float]
    """From the return of COMMIT to the record at the client, in ascending order. It may be below 0: the record can be there
    first."""
    rate: float
    """Rows a second that were inserted."""
    next_change: int
    """The number of the next change."""


def measure_delays(workspace: Workspace, orders: Orders, reader: ChangeReader, first: int) -> Delays:
    """Insert rows whose changes are numbered from `first`, which is also the end of the topic."""
    scale = workspace.scale.capture
    sender: _Sender = WorkerProcess("sender", "bench.capture.sender", str(orders.address), answers=SentOrders)
    with sender, closing(_tail(reader, first)) as consumer:
        warm = _send(sender, consumer, reader, first, round(scale.steady_warm_up_seconds * PER_SECOND))
        return _send(sender, consumer, reader, warm.next_change, round(scale.steady_seconds * PER_SECOND))


def _tail(reader: ChangeReader, offset: int) -> Consumer:
    """Return a consumer that waits at the end of the topic, as one that keeps up does."""
    consumer = Consumer({"bootstrap.servers": str(reader.kafka), "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(reader.topic, 0, offset)])
    consumer.poll(0.5)
    return consumer


def _send(sender: _Sender, consumer: Consumer, reader: ChangeReader, first: int, rows: int) -> Delays:
    sender.begin(SendOrders(first_id=_FIRST_ID + first, first_change=first, rows=rows, per_second=PER_SECOND))
    arrived = _receive(consumer, reader, first, rows)
    sent = sender.receive()
    delays = sorted(came - committed for came, committed in zip(arrived, sent.committed, strict=True))
    return Delays(delays, rows / sent.seconds, first + rows)


def _receive(consumer: Consumer, reader: ChangeReader, first: int, count: int) -> list[float]:
    """Return when each of these changes arrived."""
    arrived: dict[int, float] = {}
    while len(arrived) < count:
        message = consumer.poll(_ARRIVE_SECONDS)
        now = time.perf_counter()
        if message is None:
            raise AuditFailure(
                f"{reader.name}: {len(arrived):,} of {count:,} changes arrived; then none for {_ARRIVE_SECONDS:g} s"
            )
        if message.error() is None:
            arrived.setdefault(reader.read_change(message.value()), now)
    if set(arrived) != set(range(first, first + count)):
        raise AuditFailure(f"{reader.name}: changes arrived that are none of {first} to {first + count - 1}")
    return [arrived[number] for number in range(first, first + count)]
