"""What all ways of writing records share: the services they need, how a checked batch is placed, and what follows a commit."""

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
from tailrace.model.errors import InvariantError, OutOfOrderSequenceError, TailraceError, UnknownProducerError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.record import NO_TIMESTAMP, Appended, Record
from tailrace.store.contract import Store
from tailrace.wire.batch import NO_PRODUCER, with_append_time
from tailrace.wire.records import encode_batch

DELETED = Offset(-1)
"""The log start of a partition that was deleted."""

AppendOutcome = Appended | TailraceError
"""Where a batch was stored, or why not."""

OnAppended = Callable[[PartitionId, int], None]
"""Called with a partition and the number of bytes that readers can see there from now on."""


class AppendCallback(Protocol):
    """Gets the outcome of one batch. One of its methods is called once, on the event loop, and must return quickly."""

    def completed(self, outcome: AppendOutcome) -> None:
        """Take the outcome of the batch."""

    def failed(self, error: BaseException) -> None:
        """Take the error of the commit."""


class PublishContext:
    """The services that decide on records and count them."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        producers: Producers,
        dedup: Deduplication,
        transactional_appends: TransactionalAppends,
        clock: Clock,
        limits: Limits,
        checks: RecordChecks,
        on_appended: OnAppended,
    ) -> None:
        self.store = store
        self.topics = topics
        self.permissions = topics.permissions
        self.producers = producers
        self.dedup = dedup
        self.transactional_appends = transactional_appends
        self.clock = clock
        self.limits = limits
        self.checks = checks
        self._on_appended = on_appended

    def log_start(self, partition: PartitionId) -> Offset:
        """Return the first offset of a partition to which something was appended."""
        try:
            return self.store.bounds(partition).start
        except TailraceError:
            # The topic was deleted after the commit. The append succeeded all the same.
            return DELETED

    def arrived(self, live: LiveTopic, partition: PartitionId, records: int, size: int) -> None:
        """Count appended records, and wake the readers that wait for them."""
        live.messages_in += records
        live.bytes_in += size
        self._on_appended(partition, size)


UNKNOWN_OFFSET = -1


class PlacedAppend(NamedTuple):
    """How a batch is stored."""

    live: LiveTopic
    append: Append | None
    """None when all its records are stored already."""
    base_offset: Offset
    """The offset in the answer; negative if the records of the batch have no consecutive offsets."""
    append_time: int
    duplicates: int


def place(context: PublishContext, draft: Draft, windows: DedupWindows, checked: CheckedBatch) -> PlacedAppend:
    """Append the batch to its partition in the draft, without duplicates and with the topic's timestamps."""
    live, partition, batch, header = checked.live, checked.partition, checked.batch, checked.header
    fingerprinted = checked.records
    base_offset = answered_offset = draft.next_offset(partition)
    records, max_timestamp, oldest_timestamp = header.records, header.max_timestamp, checked.oldest_timestamp
    if fingerprinted is not None:
        batch, records, max_timestamp, answered_offset = _without_duplicates(
            windows.of(live), checked, fingerprinted, base_offset
        )
    if records == 0:
        return PlacedAppend(live, None, answered_offset, NO_TIMESTAMP, header.records)
    append_time = NO_TIMESTAMP
    if live.topic.settings.timestamps == "append":
        append_time = max_timestamp = oldest_timestamp = context.clock.now_ms()
        batch = with_append_time(batch, append_time)
    append = Append(partition, batch, records, max_timestamp, base_offset, oldest_timestamp)
    draft.append(append)
    return PlacedAppend(live, append, answered_offset, append_time, header.records - records)


def stored_before_fence(context: PublishContext, draft: Draft, checked: CheckedBatch) -> Offset:
    """Return the offset of a batch that was stored before its topic was fenced, for a producer that sends it again.

    Raises the fence for any other, also for one behind a batch that was refused: its sequence would have a gap.
    """
    header = checked.header
    if header.producer_id != NO_PRODUCER:
        if not header.is_transactional:
            context.transactional_appends.check_plain(header)
        try:
            first = context.producers.find_duplicate(draft, checked.partition, header)
        except (OutOfOrderSequenceError, UnknownProducerError):
            first = None
        if first is not None:
            return first
    checked.live.check_takes_records()
    raise InvariantError(f"topic {checked.live.topic.name!r} is not fenced")


def _without_duplicates(
    window: DedupWindow, checked: CheckedBatch, fingerprinted: Sequence[tuple[Record, bytes | None]], base_offset: Offset
) -> tuple[Buffer, int, int, Offset]:
    """Return the batch without duplicates: its bytes, record count and newest timestamp, and the offset for the answer."""
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
    answered_offset = _answered_offset(offsets)
    if len(fresh) == len(fingerprinted):
        return checked.batch, len(fresh), header.max_timestamp, answered_offset
    if not fresh:
        return checked.batch, 0, header.max_timestamp, answered_offset
    batch = encode_batch(
        fresh,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return batch, len(fresh), max(record.timestamp for record in fresh), answered_offset


def _answered_offset(offsets: Sequence[int]) -> Offset:
    """Return the offset for the answer: that of the first record if all are consecutive.

    If not, the offset is so low that all offsets which a client counts from it are negative, which clients take for unknown.
    """
    first = offsets[0]
    if first >= 0 and all(offset == first + number for number, offset in enumerate(offsets)):
        return Offset(first)
    return Offset(UNKNOWN_OFFSET - len(offsets) + 1)
