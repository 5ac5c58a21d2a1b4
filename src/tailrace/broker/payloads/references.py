"""Which records refer to which payloads, as state in the store.

Each reference is two keys, put in the frame of the record: one by record, in the order of offsets, so that references of
records that are gone are a range; and one by payload, so that a look tells whether anybody refers to it. They go after their
record has gone, and the payload after them.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits.draft import Draft
from tailrace.model.errors import UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.record import DIGEST_BYTES, PayloadReference
from tailrace.store.contract import Store

_REFERENCE = Struct(f">{DIGEST_BYTES}sQ")
_READ_AT_ONCE = 1_000


class PayloadUse(NamedTuple):
    """A record that refers to a payload."""

    partition: PartitionId
    offset: Offset
    reference: PayloadReference

    @property
    def state_keys(self) -> tuple[bytes, bytes]:
        partition, offset, reference = self
        return keys.payload_key(partition, offset), keys.payload_use_key(reference.digest, partition, offset)


class PayloadReferences:
    """May be called from any thread; sees what is settled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions: set[PartitionId] = set()

    def load(self) -> None:
        self._partitions.update(self._referring_partitions())

    def may_be_in(self, partition: PartitionId) -> bool:
        """Whether the partition may hold references. Where not, its batches need not be looked at."""
        return partition in self._partitions

    def forget_partition(self, partition: PartitionId) -> None:
        """The partition is gone. What it referred to is found by the sweep."""
        self._partitions.discard(partition)

    def add(self, draft: Draft, use: PayloadUse) -> None:
        # Before the record can be read by anybody.
        self._partitions.add(use.partition)
        by_record, by_payload = use.state_keys
        draft.put(by_record, _REFERENCE.pack(*use.reference))
        draft.put(by_payload, b"")

    def are_there(self, digest: bytes) -> bool:
        """Whether any record refers to the payload."""
        return bool(self._store.range(keys.payload_uses(digest), limit=1))

    def of_gone_records(self, most: int) -> list[PayloadUse]:
        """References of records that were trimmed away or whose topic was deleted: so many, or all that there are."""
        found: list[PayloadUse] = []
        for partition in self._referring_partitions():
            found += self._below(partition, self._start_of(partition), most - len(found))
            if len(found) == most:
                break
        return found

    def sizes(self, partition: PartitionId) -> Iterator[tuple[Offset, int]]:
        """Offsets of a partition that refer to payloads, and the payloads' sizes, in order."""
        prefix = keys.payloads_of_partition(partition)
        start = b""
        while True:
            found = self._store.range(prefix, start, _READ_AT_ONCE)
            for key, value in found:
                use = _use(key, value)
                yield use.offset, use.reference.size
            if len(found) < _READ_AT_ONCE:
                return
            start = found[-1][0][len(prefix) :] + b"\0"

    def _referring_partitions(self) -> Iterator[PartitionId]:
        """Found by one look for each."""
        start = b""
        while first := self._store.range(keys.PAYLOADS, start, 1):
            partition, _ = keys.read_payload_key(first[0][0])
            yield partition
            start = keys.after_partition(partition)

    def _below(self, partition: PartitionId, start: Offset | None, most: int) -> list[PayloadUse]:
        found = self._store.range(keys.payloads_of_partition(partition), limit=most)
        uses = [_use(key, value) for key, value in found]
        return uses if start is None else [use for use in uses if use.offset < start]

    def _start_of(self, partition: PartitionId) -> Offset | None:
        """`None` when the partition is gone."""
        try:
            return self._store.bounds(partition).start
        except UnknownPartitionError:
            return None


def _use(key: bytes, value: bytes) -> PayloadUse:
    partition, offset = keys.read_payload_key(key)
    return PayloadUse(partition, offset, PayloadReference._make(_REFERENCE.unpack(value)))
