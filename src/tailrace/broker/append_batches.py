"""The batches of one request in one commit: each is judged for itself, as in Kafka.

This way is taken by requests of several batches, by transactional batches, and by topics that look into batches: for
duplicates, or to stamp them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.admission import CheckedBatch
from tailrace.broker.commit import Proposal
from tailrace.broker.dedup import Entry, Window
from tailrace.broker.draft import Draft
from tailrace.broker.intake import Intake, Windows
from tailrace.broker.live_topic import LiveTopic
from tailrace.broker.transactions.joining import Joining
from tailrace.model.changes import Append, Buffer, Changes, Receipt
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.record import NO_TIMESTAMP, Appended, Record
from tailrace.wire.batch import NO_PRODUCER, BatchHeader
from tailrace.wire.records import encode_batch, with_append_time

Outcome = Appended | TailraceError


class AppendBatches(Proposal[list[Outcome]]):
    __slots__ = ("_adds_partitions", "_batches", "_intake", "_joining", "_placed", "_windows")

    def __init__(
        self, intake: Intake, batches: "Sequence[CheckedBatch | TailraceError]", *, adds_partitions: bool = False
    ) -> None:
        self._intake = intake
        self._batches = batches
        self._adds_partitions = adds_partitions
        self._joining: Joining | None = None
        self._placed: list[_Placed | TailraceError] = []
        self._windows: Windows | None = None

    @property
    def held_bytes(self) -> int:
        return sum(len(checked.batch) for checked in self._batches if isinstance(checked, CheckedBatch))

    def decide(self) -> Changes | None:
        self._leave_transactions()
        draft = Draft(self._intake.store)
        windows = self._windows = Windows(self._intake.dedup, draft)
        placed = self._placed = []
        for checked in self._batches:
            if isinstance(checked, TailraceError):
                placed.append(checked)
                continue
            try:
                placed.append(self._place(draft, windows, checked))
            except TailraceError as error:
                placed.append(error)
        windows.close()
        return None if draft.is_empty else draft.changes()

    def settled(self, receipt: Receipt | None) -> list[Outcome]:
        outcomes: list[Outcome] = []
        cursor = receipt.cursor if receipt is not None else Cursor(0)
        for placed in self._placed:
            if isinstance(placed, TailraceError):
                outcomes.append(placed)
                continue
            live, append, base_offset, append_time, duplicates = placed
            if append is None:
                outcomes.append(Appended(base_offset, None, append_time, duplicates))
                continue
            outcomes.append(Appended(base_offset, cursor, append_time, duplicates))
            self._intake.arrived(live, append.partition, append.records, len(append.batch))
            cursor = Cursor(cursor + append.records)
        if self._windows is not None:
            self._windows.count()
        if self._joining is not None:
            self._joining.settled()
        return outcomes

    def failed(self, error: Exception) -> None:
        self._leave_transactions()

    def _leave_transactions(self) -> None:
        if self._joining is not None:
            self._joining.failed()
            self._joining = None

    def _place(self, draft: Draft, windows: Windows, checked: CheckedBatch) -> "_Placed":
        intake = self._intake
        live, partition, batch, header = checked.live, checked.partition, checked.batch, checked.header
        fingerprinted = checked.records
        base_offset = draft.next_offset(partition)
        sequenced = header.producer_id != NO_PRODUCER
        if sequenced and not header.is_transactional:
            intake.joiner.check_plain(header)
        if sequenced:
            first = intake.producers.find_duplicate(draft, partition, header)
            if first is not None:
                return _Placed(live, None, first, NO_TIMESTAMP, header.records)
        if header.is_transactional:
            self._join_transaction(draft, partition, header, base_offset)
        records, max_timestamp, first_offset = header.records, header.max_timestamp, base_offset
        if fingerprinted is not None:
            batch, records, max_timestamp, first_offset = _without_duplicates(
                windows.of(live), checked, fingerprinted, base_offset
            )
        if sequenced:
            intake.producers.remember(draft, partition, header, first_offset)
        if records == 0:
            return _Placed(live, None, first_offset, NO_TIMESTAMP, header.records)
        append_time = NO_TIMESTAMP
        if live.topic.settings.timestamps == "append":
            append_time = max_timestamp = intake.clock.now_ms()
            batch = with_append_time(batch, append_time)
        append = Append(partition, batch, records, max_timestamp, base_offset)
        draft.append(append)
        return _Placed(live, append, base_offset, append_time, header.records - records)

    def _join_transaction(self, draft: Draft, partition: Partition, header: BatchHeader, offset: Offset) -> None:
        if self._joining is None:
            self._joining = self._intake.joiner.joining(adds_partitions=self._adds_partitions)
        self._joining.join(draft, partition, header, offset)


class _Placed(NamedTuple):
    """What is to become of a batch."""

    live: LiveTopic
    append: Append | None
    """`None` when all of it is there already."""
    base_offset: Offset
    append_time: int
    duplicates: int


def _without_duplicates(
    window: Window, checked: CheckedBatch, fingerprinted: Sequence[tuple[Record, bytes | None]], base_offset: Offset
) -> tuple[Buffer, int, int, Offset]:
    """The batch with what is new in it: its bytes, records and newest time, and the offset that its sender is told."""
    header = checked.header
    fresh: list[Record] = []
    first: Entry | None = None
    for record, fingerprint in fingerprinted:
        if fingerprint is not None:
            entry = window.first_of(fingerprint)
            if entry is not None:
                first = first or entry
                continue
            window.remember(fingerprint, checked.partition.number, Offset(base_offset + len(fresh)))
        fresh.append(record)
    if len(fresh) == len(fingerprinted):
        return checked.batch, len(fresh), header.max_timestamp, base_offset
    if not fresh:
        return checked.batch, 0, header.max_timestamp, first.offset if first is not None else base_offset
    batch = encode_batch(
        fresh,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return batch, len(fresh), max(record.timestamp for record in fresh), base_offset
