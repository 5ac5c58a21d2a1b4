"""Compaction: what a store is told to keep of a partition, and what came of it."""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.ids import Offset, PartitionId, ProducerId


class EndedTransaction(NamedTuple):
    """An aborted transaction of a partition, from its first record to its marker."""

    producer_id: ProducerId
    first_offset: Offset
    marker_offset: Offset


class CompactionRule(NamedTuple):
    """Which records of a partition may be removed.

    Of the records below `stop`, the store keeps the last one of each key. Records without a key and those of aborted
    transactions are not kept.
    """

    partition: PartitionId
    clean_end: Offset
    """Below it an earlier compaction has removed all records that have a later one of the same key below it."""
    stop: Offset
    """Records from here on are kept, whatever comes after them. No transaction that began before is open."""
    expired_end: Offset
    """Tombstones and markers of transactions below it are removed. Not above `clean_end`."""
    removes_expired: bool = True
    """Whether tombstones and markers are looked for even if there is nothing new to compact."""
    aborted: Sequence[EndedTransaction] = ()
    """The aborted transactions that readers may still ask about. Their markers are kept."""
    rolls: bool = False
    """Whether the segment that is appended to is closed first, so that its records are compacted, too."""


class CompactionResult(NamedTuple):
    """What a compaction did in one partition."""

    partition: PartitionId
    clean_end: Offset
    """The new `CompactionRule.clean_end`. Unchanged if nothing was done or if the compaction failed in this partition."""
    removed_records: int
    removed_bytes: int
