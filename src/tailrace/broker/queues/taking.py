"""Handing out records: which can be had now, read from the log, and acquired.

First those that came back, then new ones, both in the order of offsets. A share is locked while its records are read, so
that no two consumers read the same.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.broker.queues.fates import Fates
from tailrace.broker.queues.read_ahead import RECORDS_AHEAD
from tailrace.broker.queues.receipts import write_receipt
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import ShareState
from tailrace.broker.queues.tally import Tally
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import CorruptBatchError, LostPayloadError, OffsetOutOfRangeError, TailraceError
from tailrace.model.fetch import PartitionRecords
from tailrace.model.ids import Offset
from tailrace.model.limits import MIB, Limits
from tailrace.model.queue import Delivery, RecordState
from tailrace.model.record import Record
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header

_log = logging.getLogger(__name__)

_READ_BYTES = MIB


class Terms(NamedTuple):
    """How records are handed out."""

    most: int
    """In all, with those that were found before."""
    now_ms: int
    due_ms: int
    order_by_key: bool
    max_deliveries: int
    owner: str
    attempt: str


class Taker:
    def __init__(
        self, store: Store, committed: CommittedReader, topics: Topics, limits: Limits, open_records: Tally, fates: Fates
    ) -> None:
        self._store = store
        self._committed = committed
        self._topics = topics
        self._limits = limits
        self._open_records = open_records
        self._fates = fates
        self.missed = 0
        """Records that were gone, or could not be decoded, before they were done."""

    async def take(self, share: Share, terms: Terms, found: list[Delivery]) -> None:
        """Add what can be had of a share now, up to so many. If it fails, what was added before is acquired all the same."""
        async with share.lock:
            live = self._topics.by_id(share.partition.topic_id)
            if live is None or share.is_gone:
                return
            state = share.state
            self.missed += state.drop_below(self._store.bounds(share.partition).start)
            name = live.topic.name
            if terms.order_by_key:
                await self._learn_keys(share, name)
            offsets = _candidates(share, terms, terms.most - len(found))
            if offsets:
                self._acquire(share, name, await self._read_open(share, name, offsets), terms, found)
            while len(found) < terms.most and size_of(found) < self._limits.fetch_bytes and not share.is_gone:
                before = state.end
                self._acquire(share, name, await self._read_fresh(share, name, terms.most - len(found)), terms, found)
                if state.end == before:
                    break

    def _acquire(self, share: Share, name: str, records: dict[Offset, Record], terms: Terms, found: list[Delivery]) -> None:
        """Those of the records that can be had still."""
        if not records or share.is_gone:
            return
        for offset in _candidates(share, terms, len(share.state)):
            record = records.get(offset)
            if record is None or len(found) == terms.most:
                continue
            token = self._fates.new_token()
            taken = share.state.acquire(offset, terms.owner, terms.attempt, token, terms.due_ms)
            receipt = write_receipt(share.partition, offset, token)
            found.append(Delivery(name, share.partition.number, record, receipt, taken.deliveries))

    async def _learn_keys(self, share: Share, name: str) -> None:
        """After a restart, the keys of open records are in the log alone."""
        left = 0
        while (unknown := share.state.without_key()) and len(unknown) != left:
            left = len(unknown)
            await self._read_open(share, name, unknown)

    async def _read_open(self, share: Share, name: str, offsets: Sequence[Offset]) -> dict[Offset, Record]:
        """Open records by offset, as many as one answer may hold. Those that are not there any more are dropped."""
        found: dict[Offset, Record] = {}
        end = Offset(0)
        size = 0
        for first, last in _runs(offsets):
            at = first
            while at <= last and size < self._limits.fetch_bytes:
                read = await self._read(share, name, at, last + 1 - at)
                if read is None or read.next_offset <= at:
                    at = Offset(last + 1)
                    break
                found.update((record.offset, record) for record in read.records)
                size += sum(len(record.value or b"") + len(record.key or b"") for record in read.records)
                at = read.next_offset
            if at > first:
                end = at
        for offset in offsets:
            if offset >= end:
                break
            kept = share.state.get(offset)
            record = found.get(offset)
            if kept is not None and record is not None:
                kept.key = record.key
            elif kept is not None and kept.state is RecordState.AVAILABLE:
                share.state.drop([offset])
                self.missed += 1
        return found

    async def _read_fresh(self, share: Share, name: str, most: int) -> dict[Offset, Record]:
        """The next records that nobody had yet, as many as there is room for."""
        state = share.state
        room = min(most, self._room(state))
        if room <= 0 or self._store.bounds(share.partition).end <= state.end:
            return {}
        fresh = share.ahead.take(state.end, room)
        if fresh is None:
            read = await self._read(share, name, state.end, max(room, RECORDS_AHEAD))
            if read is None:
                return {}
            share.ahead.keep(state.end, read.records, read.next_offset)
            # Others may have taken of the room meanwhile, in other shares.
            fresh = share.ahead.take(state.end, max(0, min(room, self._room(state))))
        if fresh is None:
            return {}
        state.admit(fresh.records, fresh.end)
        return {record.offset: record for record in fresh.records}

    def _room(self, state: ShareState) -> int:
        """How many more records of a share may be open."""
        limits = self._limits
        return min(
            limits.queue_in_flight - len(state),
            limits.queue_group_in_flight - state.tally.records,
            limits.queues_in_flight - self._open_records.records,
        )

    async def _read(self, share: Share, name: str, offset: Offset, most: int) -> PartitionRecords | None:
        number = share.partition.number
        try:
            return await self._committed.read(
                name, number, offset, max_records=min(most, self._limits.read_records), max_bytes=_READ_BYTES
            )
        except OffsetOutOfRangeError:
            return None
        except CorruptBatchError as error:
            raw = await self._committed.batches(name, number, offset, max_bytes=1)
            head = read_header(raw.batches[0])
            return self._skip(share, offset, Offset(head.base_offset + head.records), error)
        except LostPayloadError as error:
            if error.next_offset is None:
                raise
            return self._skip(share, offset, Offset(error.next_offset), error)

    def _skip(self, share: Share, offset: Offset, end: Offset, error: TailraceError) -> PartitionRecords:
        self.missed += end - offset
        _log.warning("the group %s skips records that nobody can read: %s", share.group, error)
        return PartitionRecords((), end, self._store.bounds(share.partition), True)


def _candidates(share: Share, terms: Terms, most: int) -> list[Offset]:
    return share.state.candidates(terms.now_ms, most, terms.max_deliveries, order_by_key=terms.order_by_key)


def size_of(deliveries: Sequence[Delivery]) -> int:
    return sum(len(each.record.value or b"") + len(each.record.key or b"") for each in deliveries)


def _runs(offsets: Sequence[Offset]) -> Iterator[tuple[Offset, Offset]]:
    """First and last of offsets that follow each other."""
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last
            first = offset
        last = offset
    yield first, last
