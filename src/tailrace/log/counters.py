"""Where every partition starts and ends, as it is saved.

A checkpoint puts the counters of all partitions that have changed into one value, because a key for each of them takes longer
than the rest of what is saved of a partition with few batches. Values are read in the order of the log, and the last one that
names a partition counts. Now and then all counters are saved, which makes the values before them superfluous (`Catalog.cut`).
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from rocksdict import WriteBatch

from tailrace.log.state import COUNTERS, OLD_COUNTER, OLD_TIME, StateDb, after_prefix
from tailrace.model.ids import Partition, Position, TopicId

_PARTITION = Struct(">II")
_COUNTERS = Struct(">8sQQQQq")
_OLD_COUNTERS = Struct(">QQQQq")
_KEY = Struct(">QI")
_AT_ONCE = 4096
"""Partitions that share a value, at most: 200 KB."""


class Counters(NamedTuple):
    """Of one partition."""

    start: int
    end: int
    start_bytes: int
    end_bytes: int
    running_timestamp: int


pack_counters = _COUNTERS.pack
"""Takes the key of a partition and the fields of its `Counters`."""


def partition_key(partition: Partition) -> bytes:
    """A partition as it stands in keys and values of the state."""
    return _PARTITION.pack(*partition)


def partition_of(key: bytes) -> Partition:
    topic_id, number = _PARTITION.unpack(key)
    return Partition(TopicId(topic_id), number)


class SavedCounters:
    def __init__(self, state: StateDb) -> None:
        self._state = state
        self._has_old = False

    def load(self) -> dict[Partition, Counters]:
        found = dict(self._old())
        self._has_old = bool(found)
        for _, packed in self._state.items(COUNTERS):
            for key, *counters in _COUNTERS.iter_unpack(packed):
                found[partition_of(key)] = Counters._make(counters)
        return found

    def save(self, batch: WriteBatch, position: Position, counters: Sequence[bytes], *, are_all: bool) -> None:
        """These are how they were at the position. `are_all`: partitions that are not among them are no more."""
        if are_all:
            batch.delete_range(COUNTERS, after_prefix(COUNTERS))
            if self._has_old:
                for kind in (OLD_COUNTER, OLD_TIME):
                    batch.delete_range(kind, after_prefix(kind))
        for first in range(0, len(counters), _AT_ONCE):
            batch.put(COUNTERS + _KEY.pack(position, first), b"".join(counters[first : first + _AT_ONCE]))

    def _old(self) -> Iterator[tuple[Partition, Counters]]:
        """Format 1 has a key for each partition. They are replaced when all counters are saved for the first time."""
        for key, packed in self._state.items(OLD_COUNTER):
            yield partition_of(key[len(OLD_COUNTER) :]), Counters._make(_OLD_COUNTERS.unpack(packed))
