"""What both ways in share: where records are decided on, and what follows when they are durable."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tailrace.broker.commits import Draft
from tailrace.broker.producers.producers import Producers
from tailrace.broker.publishing.dedup import Deduplication, DedupWindow, DedupWindows
from tailrace.broker.publishing.validation import CheckedBatch, RecordChecks
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.appends import TransactionalAppends
from tailrace.model.clock import Clock
from tailrace.model.commit import Append, Buffer
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.record import NO_TIMESTAMP, Appended, Record
from tailrace.store.contract import Store
from tailrace.wire.batch import with_append_time
from tailrace.wire.records import encode_batch

GONE = Offset(-1)
"""As the start of a partition: there is none any more."""

AppendOutcome = Appended | TailraceError
"""What became of one batch."""

OnAppended = Callable[[PartitionId, int], None]
"""Called with a partition and the bytes that readers can see there from now on."""


class AppendCallback(Protocol):
    """Whoever sent a batch. Told once, on the event loop, while others wait for their turn: it must be quick."""

    def told(self, outcome: AppendOutcome) -> None:
        """What became of the batch."""

    def failed(self, error: BaseException) -> None:
        """The commit failed."""


class PublishContext:
    def __init__(
        self,
        store: Store,
        topics: Topics,
        producers: Producers,
        dedup: Deduplication,
        joiner: TransactionalAppends,
        clock: Clock,
        limits: Limits,
        checks: RecordChecks,
        on_arrival: OnAppended,
    ) -> None:
        self.store = store
        self.topics = topics
        self.producers = producers
        self.dedup = dedup
        self.joiner = joiner
        self.clock = clock
        self.limits = limits
        self.checks = checks
        self._on_arrival = on_arrival

    def log_start(self, partition: PartitionId) -> Offset:
        """For whoever appended something there."""
        try:
            return self.store.bounds(partition).start
        except TailraceError:
            # Deleted since. The records were taken, and that is what their sender must hear.
            return GONE

    def arrived(self, live: LiveTopic, partition: PartitionId, records: int, size: int) -> None:
        live.messages_in += records
        live.bytes_in += size
        self._on_arrival(partition, size)


UNKNOWN_OFFSET = -1


class PlacedAppend(NamedTuple):
    """What is to become of a batch."""

    live: LiveTopic
    append: Append | None
    """`None` when all of it is there already."""
    base_offset: Offset
    """What the sender is told; below 0 if there is no offset from which it could count all its records."""
    append_time: int
    duplicates: int


def place(context: PublishContext, draft: Draft, windows: DedupWindows, checked: CheckedBatch) -> PlacedAppend:
    """Put the batch at the end of its partition, without the records that are there already."""
    live, partition, batch, header = checked.live, checked.partition, checked.batch, checked.header
    fingerprinted = checked.records
    base_offset = told_offset = draft.next_offset(partition)
    records, max_timestamp = header.records, header.max_timestamp
    if fingerprinted is not None:
        batch, records, max_timestamp, told_offset = _without_duplicates(windows.of(live), checked, fingerprinted, base_offset)
    if records == 0:
        return PlacedAppend(live, None, told_offset, NO_TIMESTAMP, header.records)
    append_time = NO_TIMESTAMP
    if live.topic.settings.timestamps == "append":
        append_time = max_timestamp = context.clock.now_ms()
        batch = with_append_time(batch, append_time)
    append = Append(partition, batch, records, max_timestamp, base_offset)
    draft.append(append)
    return PlacedAppend(live, append, told_offset, append_time, header.records - records)


def _without_duplicates(
    window: DedupWindow, checked: CheckedBatch, fingerprinted: Sequence[tuple[Record, bytes | None]], base_offset: Offset
) -> tuple[Buffer, int, int, Offset]:
    """The batch with what is new in it: its bytes, records and newest time, and the offset that its sender is told."""
    header = checked.header
    number = checked.partition.number
    fresh: list[Record] = []
    offsets: list[int] = []
    for record, fingerprint in fingerprinted:
        if fingerprint is not None:
            entry = window.first_of(fingerprint)
            if entry is not None:
                offsets.append(entry.offset if entry.partition == number else UNKNOWN_OFFSET)
                continue
            window.remember(fingerprint, number, Offset(base_offset + len(fresh)))
        offsets.append(base_offset + len(fresh))
        fresh.append(record)
    told_offset = _told(offsets)
    if len(fresh) == len(fingerprinted):
        return checked.batch, len(fresh), header.max_timestamp, told_offset
    if not fresh:
        return checked.batch, 0, header.max_timestamp, told_offset
    batch = encode_batch(
        fresh,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return batch, len(fresh), max(record.timestamp for record in fresh), told_offset


def _told(offsets: Sequence[int]) -> Offset:
    """The offset from which the sender counts its records, if that gives for each of them where it is.

    If not, all that it gives is below 0: clients take that for unknown, and no record has it.
    """
    first = offsets[0]
    if first >= 0 and all(offset == first + number for number, offset in enumerate(offsets)):
        return Offset(first)
    return Offset(UNKNOWN_OFFSET - len(offsets) + 1)
