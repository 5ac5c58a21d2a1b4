"""What a client process is asked to do, and what it answers: values that travel as lines of JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from bench.worker_process import Failed


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered records for a topic. Those of a sender are numbered from 0; the sender of a whole partition has its number."""

    topic: str
    records: int
    record_bytes: int
    partitions: int = 1
    senders: int = 0
    """Writers that share one partition; 0 where each partition has its own."""
    settings: Mapping[str, str | int] = {}
    """Of librdkafka's producer, apart from its defaults."""

    @property
    def megabytes(self) -> float:
        return self.records * self.record_bytes / 1e6


class Task(msgspec.Struct, frozen=True, tag=True):
    load: Load


class CreateTopic(Task, frozen=True):
    """Answered with `Done`."""


class Produce(Task, frozen=True):
    """As fast as it goes; answered with a `Span` that ends with the last acknowledgement."""


class ProduceOneByOne(Task, frozen=True):
    """Each record when the one before it is acknowledged; answered with a `Span`."""


class ProduceSteadily(Task, frozen=True):
    """So many records a second; answered with a `Span`."""

    per_second: int


class OpenConnections(Task, frozen=True):
    """One producer for each sender, connected; answered with `Done`."""


class ProduceEverywhere(Task, frozen=True):
    """Over all open connections, one record in flight on each; answered with a `Span`."""


class CloseConnections(Task, frozen=True):
    """Answered with `Done`."""


class Consume(Task, frozen=True):
    """All records from the start; answered with `Done` when it is ready to read, and with a `Span` at the end.

    Every record is checked after the clock has stopped.
    """


class ConsumeSteadily(Task, frozen=True):
    """One by one as they come; answered with `Done` when it is ready to read, and with `Delays`. Checked like `Consume`."""


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
    """By the clock that all processes of the machine share."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Delays(msgspec.Struct, frozen=True, tag=True):
    """Seconds between a record's leaving and its coming, of each."""

    seconds: Sequence[float]


Answer = Done | Span | Delays | Failed


_MARK = Struct(">II")
_FILLING = bytes(range(256))


class Lane(NamedTuple):
    """Where order is promised: what one sender sends to one partition."""

    partition: int
    sender: int


class Numbering:
    """Makes records of one size."""

    def __init__(self, record_bytes: int) -> None:
        self._filling = (_FILLING * (record_bytes // len(_FILLING) + 1))[: record_bytes - _MARK.size]

    def record(self, sender: int, number: int) -> bytes:
        return _MARK.pack(sender, number) + self._filling

    def read(self, value: bytes) -> tuple[int, int]:
        """Sender and number."""
        if len(value) < _MARK.size or value[_MARK.size :] != self._filling:
            raise BadDelivery(f"a record of {len(value)} bytes is not one that was sent")
        return _MARK.unpack_from(value)


class BadDelivery(Exception):
    """What was read is not what was sent."""


class DeliveryCheck:
    """Ticks off what is read."""

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
        """Everything that was sent has come, and nothing else."""
        for lane in {*sent, *self._next}:
            if self._next[lane] != sent.get(lane, 0):
                raise BadDelivery(f"{lane} brought {self._next[lane]} records, and {sent.get(lane, 0)} were sent")
