"""One partition as a consumer has it: records that were fetched and not handed out yet, and its progress."""

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
    def __init__(
        self, topic: str, number: int, begin: int, topic_uuid: str | None = None, *, skips_corrupt: bool = False
    ) -> None:
        """`skips_corrupt`: leave out batches that can't be decoded, with a warning."""
        self._skips_corrupt = skips_corrupt
        self.failure: UnreadableBatchError | None = None
        """Why it can't go on, once what was fetched is handed out, unless somebody seeks elsewhere."""
        self._topic = topic
        self._topic_uuid = topic_uuid
        self.number = number
        self.progress = PartitionProgress(begin)
        self.is_paused = False
        self.position = begin
        """The offset of the next record to be handed out."""
        self.fetch_offset = begin
        """Where to fetch next."""
        self._fetched: list[ConsumerRecord] = []
        self._handed_out = 0

    @property
    def is_empty(self) -> bool:
        """Nothing is there to be handed out."""
        return self._handed_out == len(self._fetched)

    def seek(self, offset: int) -> None:
        """Go on from there. What was marked stays marked, and what was not is still to be done."""
        self._fetched = []
        self._handed_out = 0
        self.failure = None
        self.position = self.fetch_offset = offset

    def take_in(self, part: FetchedPartitionPart, asked_offset: int) -> None:
        """What a fetch from an offset has brought. It is thrown away if somebody has sought elsewhere meanwhile."""
        head, batches = part
        if asked_offset != self.fetch_offset:
            return
        if head.start_offset > asked_offset:
            raise OffsetOutOfRangeError(
                f"partition {self.number} of {self._topic!r} begins at {head.start_offset}, and this consumer is at"
                f" {asked_offset}: retention took what lay between. Seek to go on",
                head.start_offset,
                head.end_offset,
            )
        # Nobody will ever see what retention took.
        self.progress.mark_range(self.progress.safe_offset, min(head.start_offset, self.position))
        found: list[ConsumerRecord] = []
        topic, number, topic_uuid = self._topic, self.number, self._topic_uuid
        next_offset = head.next_offset
        for cursor, batch in batches:
            header = check_batch(batch)
            first = max(0, asked_offset - header.base_offset)
            try:
                records = decode_batch(batch, DEFAULT_LIMITS, first=first, cursor=Cursor(cursor))
            except InvalidRequestError as error:
                last = header.base_offset + header.last_offset_delta
                corrupt = CorruptBatch(topic, number, header.base_offset, last, str(error)).error
                if self._skips_corrupt:
                    _log.warning("records are skipped: %s", corrupt)
                    continue
                self.failure = corrupt
                next_offset = max(header.base_offset, asked_offset)
                break
            found += [
                ConsumerRecord(topic, number, offset, place, timestamp, key, value, headers, topic_uuid)
                for key, value, headers, timestamp, offset, place in records
            ]
        self._fetched = found
        self._handed_out = 0
        self.fetch_offset = max(next_offset, asked_offset)
        if not found:
            self._step_over(self.fetch_offset)

    def hand_out(self, most: int) -> Sequence[ConsumerRecord]:
        """The next records, at most so many."""
        records = self._fetched[self._handed_out : self._handed_out + most]
        self._handed_out += len(records)
        if records and records[-1].offset - self.position + 1 > len(records):
            for record in records:
                self._step_over(record.offset)
                self.position = record.offset + 1
        if records:
            self.position = records[-1].offset + 1
        if self.is_empty:
            self._step_over(self.fetch_offset)
        return records

    def _step_over(self, offset: int) -> None:
        """No record for a reader lies between the position and this offset."""
        if offset > self.position:
            self.progress.mark_range(self.position, offset)
            self.position = offset


class PartitionProgress:
    """All methods are called by one thread; `safe_offset` and `committed_offset` may be read by another."""

    __slots__ = ("_done", "committed_offset", "safe_offset")

    def __init__(self, begin: int) -> None:
        self.safe_offset = begin
        """Everything below it is done."""
        self.committed_offset = begin
        """What the group has committed, as far as this consumer knows."""
        self._done = OffsetRanges()
        """Offsets beyond `safe_offset` that are done."""

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.safe_offset > self.committed_offset

    @property
    def held_ranges(self) -> int:
        return len(self._done)

    def mark(self, offset: int) -> None:
        """The record at this offset is done."""
        if offset == self.safe_offset and not self._done:
            self.safe_offset = offset + 1
        else:
            self.mark_range(offset, offset + 1)

    def mark_range(self, start: int, end: int) -> None:
        """Everything from `start` to before `end` is done."""
        self._done.add_range(max(start, self.safe_offset), end)
        reached = self._done.first_missing(self.safe_offset)
        if reached > self.safe_offset:
            self._done.forget_below(reached)
            # The assignment comes last: another thread reads it at any moment.
            self.safe_offset = reached

    def committed(self, offset: int) -> None:
        self.committed_offset = max(self.committed_offset, offset)


RANGE = "range"


def assign_ranges(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
    """By member: its partitions of each topic. `subscriptions` are the topics of each member."""
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
