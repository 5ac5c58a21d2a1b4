"""Records that say who sent them and as which one, so that a reader can tell whether all came, once and in order."""

from collections import Counter
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

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


class Ledger:
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
