"""Raw Kafka batches, as clients send them. Each batch is judged for itself; those that are taken share one commit.

The records inside are not looked at, unless the topic looks for duplicates.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.admission import check_raw_batch
from tailrace.broker.commit import Committer, Proposal
from tailrace.broker.dedup import Entry, Window, fingerprint_of_content, fingerprint_of_id
from tailrace.broker.draft import Draft
from tailrace.broker.intake import Intake, Windows
from tailrace.broker.live_topic import LiveTopic
from tailrace.model.changes import Append, Buffer, Changes, Receipt
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.record import MESSAGE_ID_HEADER, NO_TIMESTAMP, Appended, RawBatch, Record
from tailrace.model.topic import Dedup
from tailrace.wire.batch import NO_PRODUCER, BatchHeader, check_batch
from tailrace.wire.records import decode_batch, encode_batch, with_append_time

Outcome = Appended | TailraceError


class Appender:
    def __init__(self, intake: Intake, committer: Committer) -> None:
        self._intake = intake
        self._committer = committer

    def append(self, batches: Sequence[RawBatch]) -> "asyncio.Future[list[Outcome]]":
        """Append each batch or say why not, in the order of the batches.

        The future itself fails only when the commit does. Batches of bytes are copied when they are stored; a `bytearray` or
        a writable view is changed in place and must be left alone from here on.
        """
        return self._committer.submit(_AppendBatches(self._intake, [self._checked(batch) for batch in batches]))

    def _checked(self, raw: RawBatch) -> "_Checked | TailraceError":
        intake = self._intake
        name, number, batch = raw
        try:
            live = intake.topics.get(name)
            partition = live.partition(number)
            header = check_batch(batch)
            now = intake.clock.now_ms()
            check_raw_batch(header, len(batch), live, now, intake.limits)
            settings = live.topic.settings
            if settings.dedup is None:
                return _Checked(live, partition, batch, header, None)
            return _Checked(live, partition, batch, header, _fingerprinted(decode_batch(batch, intake.limits), settings.dedup))
        except TailraceError as error:
            return error


class _Checked(NamedTuple):
    """A batch that is fit to be stored."""

    live: LiveTopic
    partition: Partition
    batch: Buffer
    header: BatchHeader
    records: "list[tuple[Record, bytes | None]] | None"
    """Its records and their fingerprints, where the topic looks for duplicates."""


class _Placed(NamedTuple):
    """What is to become of a batch."""

    live: LiveTopic
    append: Append | None
    """`None` when all of it is there already."""
    base_offset: Offset
    append_time: int
    duplicates: int


class _AppendBatches(Proposal[list[Outcome]]):
    __slots__ = ("_batches", "_intake", "_placed", "_windows")

    def __init__(self, intake: Intake, batches: "list[_Checked | TailraceError]") -> None:
        self._intake = intake
        self._batches = batches
        self._placed: list[_Placed | TailraceError] = []
        self._windows: Windows | None = None

    @property
    def held_bytes(self) -> int:
        return sum(len(checked.batch) for checked in self._batches if isinstance(checked, _Checked))

    def decide(self) -> Changes | None:
        self.failed()
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
            live.dedup_hits += duplicates
            if append is None:
                outcomes.append(Appended(base_offset, None, append_time, duplicates))
                continue
            outcomes.append(Appended(base_offset, cursor, append_time, duplicates))
            self._intake.arrived(live, append.partition, append.records, len(append.batch))
            cursor = Cursor(cursor + append.records)
        if self._windows is not None:
            self._windows.settle()
        return outcomes

    def failed(self) -> None:
        if self._windows is not None:
            self._windows.release()

    def _place(self, draft: Draft, windows: Windows, checked: _Checked) -> _Placed:
        intake = self._intake
        live, partition, batch, header, fingerprinted = checked
        intake.check_in_service(live)
        base_offset = draft.next_offset(partition)
        sequenced = header.producer_id != NO_PRODUCER
        if sequenced:
            first = intake.producers.find_duplicate(draft, partition, header)
            if first is not None:
                return _Placed(live, None, first, NO_TIMESTAMP, header.records)
        records = header.records
        answered_offset = base_offset
        if fingerprinted is not None:
            batch, records, answered_offset = _without_duplicates(windows.of(live), checked, fingerprinted, base_offset)
        if sequenced:
            intake.producers.remember(draft, partition, header, answered_offset)
        if records == 0:
            return _Placed(live, None, answered_offset, NO_TIMESTAMP, header.records)
        append_time = NO_TIMESTAMP
        max_timestamp = header.max_timestamp
        if live.topic.settings.timestamps == "append":
            append_time = max_timestamp = intake.clock.now_ms()
            batch = with_append_time(batch, append_time)
        elif max_timestamp < 0:
            max_timestamp = intake.clock.now_ms()
        draft.take_offsets(partition, records)
        append = Append(partition, batch, records, max_timestamp, base_offset)
        draft.append(append)
        return _Placed(live, append, base_offset, append_time, header.records - records)


def _without_duplicates(
    window: Window, checked: _Checked, fingerprinted: "list[tuple[Record, bytes | None]]", base_offset: Offset
) -> tuple[Buffer, int, Offset]:
    """The batch with what is new in it, the number of its records, and the offset that its sender is told."""
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
        return checked.batch, len(fresh), base_offset
    if not fresh:
        return checked.batch, 0, first.offset if first is not None else base_offset
    header = checked.header
    batch = encode_batch(
        fresh,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return batch, len(fresh), base_offset


def _fingerprinted(records: list[Record], by: Dedup) -> list[tuple[Record, bytes | None]]:
    if by == "content":
        return [(record, fingerprint_of_content(record.key, record.value)) for record in records]
    return [(record, _fingerprint_by_header(record)) for record in records]


def _fingerprint_by_header(record: Record) -> bytes | None:
    for name, value in record.headers:
        if name == MESSAGE_ID_HEADER and value:
            return fingerprint_of_id(value)
    return None
