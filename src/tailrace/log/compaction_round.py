"""A round of compaction: the last offsets of keys in some partitions, and what they mean for a batch.

A round has two steps for each partition. First the keys of the records since the last round are noted (`note`). Then every
batch below where that ended is edited (`edited`): of records with the same key only the last one stays. Stores differ in where
they have their batches, not in which records they keep.
"""

import logging
import subprocess
from bisect import bisect_right
from collections.abc import Sequence

from tailrace.model.commit import Buffer
from tailrace.model.compaction import CompactionRule, EndedTransaction
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.wire.batch import BatchHeader, read_header
from tailrace.wire.compaction import LatestOffsets, PlainLatestOffsets, compacted_batch
from tailrace.wire.control import TransactionMarker, decode_marker
from tailrace.wire.fast_compaction import CompiledLatestOffsets, compile_compaction, load_compaction
from tailrace.wire.records import decompressed_records

_WORTH_COMPILING_RECORDS = 10_000

_logger = logging.getLogger(__name__)


def latest_offsets(limits: Limits, records: int) -> LatestOffsets:
    """Return an empty memory for the keys of about so many records."""
    load = load_compaction()
    if load is None and records >= _WORTH_COMPILING_RECORDS:
        try:
            compile_compaction()
        except (OSError, subprocess.SubprocessError) as error:
            _logger.warning("topics are compacted without compiled code, which is many times slower: %s", error)
        load = load_compaction()
    if load is None:
        return PlainLatestOffsets(limits.compaction_key_bytes)
    found: CompiledLatestOffsets = load(limits.compaction_key_bytes, records)
    return found


class PartitionRound:
    """One partition in a round."""

    def __init__(self, rule: CompactionRule, keys: LatestOffsets, start: int, stop: int, limits: Limits) -> None:
        self.rule = rule
        self._keys = keys
        self._limits = limits
        self._aborted: dict[int, list[EndedTransaction]] = {}
        for transaction in sorted(rule.aborted, key=lambda each: each.first_offset):
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        self._markers = {transaction.marker_offset for transaction in rule.aborted}
        self.start = start
        self.end = start
        """Up to here keys have been noted, and batches are edited."""
        self.stop = stop
        self.is_full = False
        """Whether there was no room for the keys of all records."""
        self.has_failed = False
        self.removed_records = 0
        self.removed_bytes = 0

    def note(self, batches: Sequence[Buffer]) -> bool:
        """Note the keys of the next batches, and return whether there are more to note."""
        for batch in batches:
            header = read_header(batch)
            if header.end_offset > self.stop:
                self.stop = self.end
                return False
            if not header.is_control and not self._is_aborted(header):
                try:
                    data = decompressed_records(batch, header, self._limits)
                    has_room = self._keys.note(self.rule.partition, header, data, self.stop)
                except InvalidRequestError:
                    # What can't be decoded is kept as it is.
                    has_room = True
                if not has_room:
                    self.is_full = True
                    return False
            self.end = header.end_offset
        return self.end < self.stop

    @property
    def has_work(self) -> bool:
        """Whether there may be something to remove."""
        return self.end > self.start or self.rule.removes_expired

    def covers(self, end_offset: int) -> bool:
        """Return whether a batch that ends at this offset is edited."""
        return end_offset <= self.end

    def edited(self, batch: Buffer) -> Buffer | None:
        """Return what is kept of a batch: the same object if that is all of it, and `None` if it is nothing."""
        header = read_header(batch)
        expired_end = self.rule.expired_end
        if header.is_control:
            return None if self._is_expired_marker(batch, header) else batch
        if self._is_aborted(header):
            return None
        try:
            data = decompressed_records(batch, header, self._limits)
            kept = self._keys.kept(self.rule.partition, header, data, expired_end)
        except InvalidRequestError:
            return batch
        if kept.records == header.records:
            return batch
        return compacted_batch(batch, header, data, kept) if kept.records else None

    def count_removed(self, batch: Buffer, edited: Buffer | None) -> None:
        """Count what an edit has removed."""
        if edited is not batch:
            self.removed_records += read_header(batch).records - (0 if edited is None else read_header(edited).records)
            self.removed_bytes += len(batch) - (0 if edited is None else len(edited))

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        transactions = self._aborted.get(header.producer_id, ())
        at = bisect_right(transactions, header.base_offset, key=lambda each: each.first_offset) - 1
        return at >= 0 and header.base_offset <= transactions[at].marker_offset

    def _is_expired_marker(self, batch: Buffer, header: BatchHeader) -> bool:
        if header.end_offset > self.rule.expired_end:
            return False
        # A reader that is told of an aborted transaction skips its producer's batches until it sees this marker.
        return decode_marker(batch) is not TransactionMarker.ABORT or header.base_offset not in self._markers
