"""The tasks of a client process and its answers, as lines of JSON; and numbered records, to find lost and duplicate ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from bench.worker_process import Failed


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered records for a topic. Each sender numbers its records from 0; the only sender of a partition has its number."""

    topic: str
    records: int
    record_bytes: int
    partitions: int = 1
    senders: int = 0
    """The number of senders that share one partition; 0 if each partition has its own."""
    settings: Mapping[str, str | int] = {}
    """Settings of librdkafka's producer that differ from the defaults."""
    pause_seconds: float = 0.0
    """How long a client rests between connecting and its work, for what a server does after a login."""

    @property
    def megabytes(self) -> float:
        return self.records * self.record_bytes / 1e6


class Task(msgspec.Struct, frozen=True, tag=True):
    load: Load


class CreateTopic(Task, frozen=True):
    """Answered with `Done`."""


class Produce(Task, frozen=True):
    """Produce as fast as possible. Answered with a `Span` that ends with the last ack."""


class ProduceOneByOne(Task, frozen=True):
    """Produce each record after the ack of the one before. Answered with a `Span`."""


class ProduceSteadily(Task, frozen=True):
    """Produce at a steady rate. Answered with a `Span`."""

    per_second: int


class OpenConnections(Task, frozen=True):
    """Connect one producer for each sender. Answered with `Done`."""


class ProduceEverywhere(Task, frozen=True):
    """Produce over all open connections, one record in flight on each. Answered with a `Span`."""


class CloseConnections(Task, frozen=True):
    """Answered with `Done`."""


class Consume(Task, frozen=True):
    """Consume all records from the start. Answered with `Done` when ready to read, and with a `Span` at the end.

    Every record is checked after the clock has stopped.
    """


class ConsumeSteadily(Task, frozen=True):
    """Consume records as they arrive. Answered with `Done` when ready to read, and with `Delays`. Checked like `Consume`."""


AnyTask = (
    CreateTopic
    | Produce
    | ProduceOneByOne
    | ProduceSteadily
    | OpenConnections
    | ProduceEverywhere
    | CloseConnections
    | Consume
    | ConsumeSteadily
)


class Done(msgspec.Struct, frozen=True, tag=True):
    pass


class Span(msgspec.Struct, frozen=True, tag=True):
    """Times of the clock that all processes of the machine share."""

    began: float
    ended: float
    cpu_seconds: float = 0.0
    """The CPU time of the server between them. To connect and to log in is not part of it."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Delays(msgspec.Struct, frozen=True, tag=True):
    """The seconds between sending and receiving, of each record."""

    seconds: Sequence[float]


Answer = Done | Span | Delays | Failed


_MARK = Struct(">II")
_FILLING = bytes(range(256))


class Lane(NamedTuple):
    """The records of one sender in one partition, whose order is guaranteed."""

    partition: int
    sender: int


class Numbering:
    """Makes records of one size."""

    def __init__(self, record_bytes: int) -> None:
        self._filling = (_FILLING * (record_bytes // len(_FILLING) + 1))[: record_bytes - _MARK.size]

    def record(self, sender: int, number: int) -> bytes:
        return _MARK.pack(sender, number) + self._filling

    def read(self, value: bytes) -> tuple[int, int]:
        """Return the sender and the number of a record."""
        if len(value) < _MARK.size or value[_MARK.size :] != self._filling:
            raise BadDelivery(f"a record of {len(value)} bytes is not one that was sent")
        return _MARK.unpack_from(value)


class BadDelivery(Exception):
    """The records that were read are not those that were sent."""


class DeliveryCheck:
    """Checks that each record is read once and in order."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._next: Counter[Lane] = Counter()

    def tick(self, partition: int, value: bytes) -> None:
        sender, number = self._numbering.read(value)
        lane = Lane(partition, sender)
        due = self._next[lane]
        if number != due:
            what = "lost or out of order" if number > due else "doubled or out of order"
            raise BadDelivery(f"{lane} brought record {number} where {due} was due: {what}")
        self._next[lane] = due + 1

    def close(self, sent: Mapping[Lane, int]) -> None:
        """Check that everything that was sent was read, and nothing else."""
        for lane in {*sent, *self._next}:
            if self._next[lane] != sent.get(lane, 0):
                raise BadDelivery(f"{lane} brought {self._next[lane]} records, and {sent.get(lane, 0)} were sent")
