"""A commit under construction. It sees the latest view of the store with its own changes on top.

What is put in a draft may depend on offsets that commits in flight will leave behind. Such appends name the offset they were
built for, so the store refuses the commit if one of those in flight fails in between. For this to hold, `next_offset` of a
partition is read before any state that belongs to it.
"""

from tailrace.model.commit import Append, Changes
from tailrace.model.ids import Offset, PartitionId
from tailrace.store.contract import Store


class Draft:
    __slots__ = ("_appends", "_ends", "_puts", "_seen", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[PartitionId, Offset] = {}
        self._puts: dict[bytes, bytes | None] = {}
        self._seen: dict[bytes, bytes | None] = {}
        self._appends: list[Append] = []

    @property
    def is_empty(self) -> bool:
        return not self._appends and not self._puts

    def next_offset(self, partition: PartitionId) -> Offset:
        end = self._ends.get(partition)
        if end is None:
            end = self._ends[partition] = self._store.next_offset(partition)
        return end

    def append(self, append: Append) -> None:
        """An append at the next offset of its partition."""
        self._appends.append(append)
        self._ends[append.partition] = Offset(append.base_offset + append.records)

    def holds(self, key: bytes) -> bool:
        """Whether the draft itself sets the key."""
        return key in self._puts

    def latest(self, key: bytes) -> bytes | None:
        if key in self._seen:
            return self._seen[key]
        value = self._seen[key] = self._store.latest(key)
        return value

    def put(self, key: bytes, value: bytes | None) -> None:
        self._puts[key] = self._seen[key] = value

    def changes(self) -> Changes:
        return Changes(appends=self._appends, puts=tuple(self._puts.items()))
