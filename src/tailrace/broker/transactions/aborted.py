"""Which transactions of a partition were aborted, found by the offsets that a reader has got.

The index is ordered by where transactions ended. Each entry also says what the last stable offset was when it was made: all
transactions that end later begin there or after it, which tells a reader how far it has to look.
"""

from struct import Struct

from tailrace.broker import keys
from tailrace.broker.commits.draft import Draft
from tailrace.model.ids import Offset, Partition, ProducerId
from tailrace.model.transaction import AbortedTransaction
from tailrace.store.contract import Store

_ENTRY = Struct(">qqq")
_SCAN_KEYS = 100
_FORGOTTEN_AT_ONCE = 10_000


class AbortedTransactions:
    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        draft: Draft,
        partition: Partition,
        aborted: AbortedTransaction,
        last_offset: Offset,
        last_stable_offset: Offset,
    ) -> None:
        """A transaction whose marker is at `last_offset`, aborted when the last stable offset was at least so high."""
        draft.put(keys.aborted_key(partition, last_offset), _ENTRY.pack(*aborted, last_stable_offset))

    def between(self, partition: Partition, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """Those that have records from `start` up to but without `end`."""
        found: list[AbortedTransaction] = []
        prefix = keys.aborted_of_partition(partition)
        bound = keys.aborted_bound(start)
        while True:
            entries = self._store.range(prefix, bound, _SCAN_KEYS)
            for _, value in entries:
                producer_id, first_offset, last_stable_offset = _ENTRY.unpack(value)
                if first_offset < end:
                    found.append(AbortedTransaction(ProducerId(producer_id), Offset(first_offset)))
                if last_stable_offset >= end:
                    return found
            if len(entries) < _SCAN_KEYS:
                return found
            bound = entries[-1][0][len(prefix) :] + b"\0"

    def below(self, partition: Partition, start: Offset) -> list[bytes]:
        """Keys of those that ended below the offset, which nobody can read any more."""
        oldest = self._store.range(keys.aborted_of_partition(partition), limit=_FORGOTTEN_AT_ONCE)
        return [key for key, _ in oldest if keys.last_offset_of_aborted(key) < start]
