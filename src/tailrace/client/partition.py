"""A consumer's partitions: how they are assigned, fetched records that no poll has returned yet, and what may be committed.

Only records that were marked count as processed, and a commit may cover only offsets below which everything is. Offsets
without a record for a reader (markers and aborted transactions) count as processed once they are passed.
"""

import logging
from collections.abc import Mapping, Sequence

from tailrace.client.values import ConsumerRecord
from tailrace.model.errors import InvalidRequestError, OffsetOutOfRangeError, UnreadableBatchError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.offset_ranges import OffsetRanges
from tailrace.wire.batch import check_batch
from tailrace.wire.batch_stream import FetchedPartitionPart
from tailrace.wire.records import decode_batch

_log = logging.getLogger("tailrace.client")


class AssignedPartition:
    """A partition that a consumer reads."""

    def __init__(
        self, topic: str, number: int, begin: int, topic_uuid: str | None = None, *, skips_corrupt: bool = False
    ) -> None:
        """With `skips_corrupt`, batches that can't be decoded are skipped with a warning."""
        self._skips_corrupt = skips_corrupt
        self.failure: UnreadableBatchError | None = None
        """Why reading can't continue after the fetched records, until a seek."""
        self._topic = topic
        self._topic_uuid = topic_uuid
        self.number = number
        self.progress = PartitionProgress(begin)
        self.is_paused = False
        self.position = begin
        """The offset of the next record that a poll returns."""
        self.fetch_offset = begin
        """The offset of the next fetch."""
        self._fetched: list[ConsumerRecord] = []
        self._returned = 0

    @property
    def is_empty(self) -> bool:
        """Whether all fetched records were returned."""
        return self._returned == len(self._fetched)

    def seek(self, offset: int) -> None:
        """Continue at this offset. Marks stay as they are."""
        self._fetched = []
        self._returned = 0
        self.failure = None
        self.position = self.fetch_offset = offset

    def add_fetched(self, part: FetchedPartitionPart, requested_offset: int) -> None:
        """Add what a fetch at an offset returned. Drops it if there was a seek in the meantime."""
        head, batches = part
        if requested_offset != self.fetch_offset:
            return
        if head.start_offset > requested_offset:
            raise OffsetOutOfRangeError(
                f"partition {self.number} of {self._topic!r} starts at {head.start_offset}, and this consumer is at"
                f" {requested_offset}: retention removed the records in between. Seek to continue",
                head.start_offset,
                head.end_offset,
            )
        # Retention removed these records, so nobody can process them.
        self.progress.mark_range(self.progress.safe_offset, min(head.start_offset, self.position))
        found: list[ConsumerRecord] = []
        topic, number, topic_uuid = self._topic, self.number, self._topic_uuid
        next_offset = head.next_offset
        for cursor, batch in batches:
            header = check_batch(batch, may_be_sparse=True)
            first = max(0, requested_offset - header.base_offset)
            try:
                records = decode_batch(batch, DEFAULT_LIMITS, first=first, cursor=Cursor(cursor))
            except InvalidRequestError as error:
                last = header.base_offset + header.last_offset_delta
                corrupt = CorruptBatch(topic, number, header.base_offset, last, str(error)).error
                if self._skips_corrupt:
                    _log.warning("skipping records that can't be decoded: %s", corrupt)
                    continue
                self.failure = corrupt
                next_offset = max(header.base_offset, requested_offset)
                break
            found += [
                ConsumerRecord(topic, number, offset, place, timestamp, key, value, headers, topic_uuid)
                for key, value, headers, timestamp, offset, place in records
            ]
        self._fetched = found
        self._returned = 0
        self.fetch_offset = max(next_offset, requested_offset)
        if not found:
            self._pass_to(self.fetch_offset)

    def take_records(self, max_records: int) -> Sequence[ConsumerRecord]:
        """Return the next records, at most so many."""
        records = self._fetched[self._returned : self._returned + max_records]
        self._returned += len(records)
        if records and records[-1].offset - self.position + 1 > len(records):
            for record in records:
                self._pass_to(record.offset)
                self.position = record.offset + 1
        if records:
            self.position = records[-1].offset + 1
        if self.is_empty:
            self._pass_to(self.fetch_offset)
        return records

    def _pass_to(self, offset: int) -> None:
        """Move the position to an offset before which there is no record for a reader."""
        if offset > self.position:
            self.progress.mark_range(self.position, offset)
            self.position = offset


class PartitionProgress:
    """What is processed and what is committed of one partition.

    One thread calls all methods; another may read `safe_offset` and `committed_offset`.
    """

    __slots__ = ("_has_gaps", "_processed", "committed_offset", "safe_offset")

    def __init__(self, begin: int) -> None:
        self.safe_offset = begin
        """Everything below it is processed."""
        self.committed_offset = begin
        """What the group has committed, as far as this consumer knows."""
        self._processed = OffsetRanges()
        """Processed offsets above `safe_offset`."""
        self._has_gaps = False
        """Whether there are such offsets. To ask `_processed` costs a call, and `mark` is called for each record."""

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.safe_offset > self.committed_offset

    @property
    def held_ranges(self) -> int:
        return len(self._processed)

    def mark(self, offset: int) -> None:
        """Mark the record at this offset as processed."""
        if offset == self.safe_offset and not self._has_gaps:
            self.safe_offset = offset + 1
        else:
            self.mark_range(offset, offset + 1)

    def mark_range(self, start: int, end: int) -> None:
        """Mark everything from `start` to before `end` as processed."""
        self._processed.add_range(max(start, self.safe_offset), end)
        reached = self._processed.first_missing(self.safe_offset)
        if reached > self.safe_offset:
            self._processed.forget_below(reached)
            # The assignment comes last, because another thread reads it at any moment.
            self.safe_offset = reached
        self._has_gaps = bool(self._processed)

    def note_commit(self, offset: int) -> None:
        self.committed_offset = max(self.committed_offset, offset)


RANGE = "range"
"""The name of Kafka's range assignor, so that its clients and this one agree."""


def assign_ranges(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
    """Return each member's partitions of each topic, given the topics of each member.

    Within a topic, members in the order of their ids get neighbouring partitions, and the first ones one more each if the
    numbers do not come out even.
    """
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    for topic, count in sorted(partitions.items()):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        each, extra = divmod(count, len(members))
        first = 0
        for place, member in enumerate(members):
            size = each + (place < extra)
            if size:
                shares[member][topic] = list(range(first, first + size))
            first += size
    return shares
