"""Raw Kafka batches, as clients send them. Each batch is judged for itself; those that are taken share one commit.

The records inside are not looked at, unless the topic looks for duplicates.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.admission import check_raw_batch
from tailrace.broker.commit import Committer, Proposal, StillInFlight
from tailrace.broker.dedup import Entry, Window, fingerprint_of_content, fingerprint_of_id
from tailrace.broker.draft import Draft
from tailrace.broker.intake import Intake, Windows
from tailrace.broker.keys import producer_key
from tailrace.broker.live_topic import LiveTopic
from tailrace.model.changes import Append, Buffer, Changes, Receipt
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.limits import MIB
from tailrace.model.record import MESSAGE_ID_HEADER, NO_TIMESTAMP, Appended, RawBatch, Record
from tailrace.model.topic import Dedup
from tailrace.wire.batch import NO_PRODUCER, BatchHeader, check_batch
from tailrace.wire.records import decode_batch, encode_batch, with_append_time

Outcome = Appended | TailraceError


_BUNDLE_BATCHES = 1_000
_BUNDLE_BYTES = MIB


class Appender:
    def __init__(self, intake: Intake, committer: Committer) -> None:
        self._intake = intake
        self._committer = committer
        self._bundle: _Bundle | None = None

    def append(self, batches: Sequence[RawBatch]) -> "asyncio.Future[list[Outcome]]":
        """Append each batch or say why not, in the order of the batches.

        The future itself fails only when the commit does. Batches of bytes are copied when they are stored; a `bytearray` or
        a writable view is changed in place and must be left alone from here on.
        """
        checked = [self._checked(batch) for batch in batches]
        if len(checked) == 1:
            only = checked[0]
            if isinstance(only, _Checked) and only.live.takes_batches_as_they_are:
                return self._bundled(only)
        return self._committer.submit(_AppendBatches(self._intake, checked))

    def _bundled(self, checked: "_Checked") -> "asyncio.Future[list[Outcome]]":
        """Single small batches that come in one turn of the event loop share a commit, which saves most of its cost."""
        loop = self._committer.loop
        future: asyncio.Future[list[Outcome]] = loop.create_future()
        bundle = self._bundle
        if bundle is None:
            bundle = self._bundle = _Bundle(self._intake)
            loop.call_soon(self._submit, bundle)
        if bundle.add(checked, future):
            self._submit(bundle)
        return future

    def _submit(self, bundle: "_Bundle") -> None:
        if bundle is self._bundle:
            self._bundle = None
            # Those who wait are told one by one; nobody waits for the bundle as such.
            self._committer.submit(bundle).add_done_callback(asyncio.Future.exception)

    def _checked(self, raw: RawBatch) -> "_Checked | TailraceError":
        intake = self._intake
        name, number, batch = raw
        try:
            live = intake.topics.get(name)
            partition = live.partition(number)
            header = check_batch(batch)
            now_ms = intake.clock.now_ms()
            check_raw_batch(header, len(batch), live, now_ms, intake.limits)
            if header.max_timestamp < 0:
                # The records have no time of their own; for retention and the index it is now.
                header = header._replace(max_timestamp=now_ms)
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


class _Bundle(Proposal[None]):
    """Batches of many requests, for topics that take batches as they are, in one commit."""

    __slots__ = ("_held_bytes", "_intake", "_outcomes", "_waiting")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._waiting: list[tuple[_Checked, asyncio.Future[list[Outcome]]]] = []
        self._outcomes: list[Append | Outcome] = []
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def add(self, checked: _Checked, future: "asyncio.Future[list[Outcome]]") -> bool:
        """Whether the bundle is full now."""
        self._waiting.append((checked, future))
        self._held_bytes += len(checked.batch)
        return self._held_bytes >= _BUNDLE_BYTES or len(self._waiting) >= _BUNDLE_BATCHES

    def decide(self) -> Changes | None:
        draft = Draft(self._intake.store)
        outcomes = self._outcomes = []
        postponed = []
        for waiting in self._waiting:
            try:
                outcomes.append(self._place(draft, waiting[0]))
            except TailraceError as error:
                outcomes.append(error)
            except StillInFlight:
                postponed.append(waiting)
        for waiting in postponed:
            self._waiting.remove(waiting)
            self._postpone(*waiting)
        return None if draft.is_empty else draft.changes()

    def settled(self, receipt: Receipt | None) -> None:
        cursor = receipt.cursor if receipt is not None else Cursor(0)
        arrived = self._intake.arrived
        for (checked, future), outcome in zip(self._waiting, self._outcomes, strict=True):
            if isinstance(outcome, Append):
                partition, batch, records, _, base_offset = outcome
                arrived(checked.live, partition, records, len(batch))
                outcome = Appended(base_offset, cursor, NO_TIMESTAMP, 0)
                cursor = Cursor(cursor + records)
            if not future.done():
                future.set_result([outcome])

    def failed(self, error: Exception) -> None:
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)

    def _place(self, draft: Draft, checked: _Checked) -> Append | Outcome:
        live, partition, batch, header, _ = checked
        intake = self._intake
        intake.check_in_service(live)
        base_offset = draft.next_offset(partition)
        if header.producer_id != NO_PRODUCER:
            key = producer_key(partition, header.producer_id)
            state = draft.latest(key)
            first = intake.producers.find_duplicate(header, state)
            if first is not None:
                if not draft.holds(key):
                    intake.producers.check_settled(key, header)
                return Appended(first, None, NO_TIMESTAMP, header.records)
            for put in intake.producers.puts_for(key, partition, header, state, base_offset):
                draft.put(*put)
        append = Append(partition, batch, header.records, header.max_timestamp, base_offset)
        draft.append(append)
        return append

    def _postpone(self, checked: _Checked, future: "asyncio.Future[list[Outcome]]") -> None:
        """A duplicate of something in flight waits for it alone; the others need not."""

        def pass_on(answered: "asyncio.Future[list[Outcome]]") -> None:
            error = answered.exception()
            if future.done():
                return
            if error is None:
                future.set_result(answered.result())
            else:
                future.set_exception(error)

        self.committer.submit(_AppendBatches(self._intake, [checked])).add_done_callback(pass_on)


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
        if self._windows is not None:
            self._windows.release()
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

    def failed(self, error: Exception) -> None:
        if self._windows is not None:
            self._windows.release()

    def _place(self, draft: Draft, windows: Windows, checked: _Checked) -> _Placed:
        intake = self._intake
        live, partition, batch, header, fingerprinted = checked
        intake.check_in_service(live)
        base_offset = draft.next_offset(partition)
        sequenced = header.producer_id != NO_PRODUCER
        if sequenced:
            key = producer_key(partition, header.producer_id)
            state = draft.latest(key)
            first = intake.producers.find_duplicate(header, state)
            if first is not None:
                if not draft.holds(key):
                    intake.producers.check_settled(key, header)
                return _Placed(live, None, first, NO_TIMESTAMP, header.records)
        records = header.records
        answered_offset = base_offset
        if fingerprinted is not None:
            batch, records, answered_offset = _without_duplicates(windows.of(live), checked, fingerprinted, base_offset)
        if sequenced:
            for put in intake.producers.puts_for(key, partition, header, state, answered_offset):
                draft.put(*put)
        if records == 0:
            return _Placed(live, None, answered_offset, NO_TIMESTAMP, header.records)
        append_time = NO_TIMESTAMP
        max_timestamp = header.max_timestamp
        if live.topic.settings.timestamps == "append":
            append_time = max_timestamp = intake.clock.now_ms()
            batch = with_append_time(batch, append_time)
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
