"""Reads committed records, as batches or decoded: none of transactions that are open or were aborted.

Kafka clients filter such records themselves (`Fetcher.fetch` tells them which); here it is done for all other readers. An error
of a partition is raised. Results reserve memory from the answer that they are for (`answers.py`); what does not fit is left for
the next read.

A batch that can't be decoded ends the read, and is an error if it comes first, unless the reader skips such batches.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from tailrace.broker.isolation import committed_batches
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.reading.answers import AnswerMemory, ReadAnswer
from tailrace.broker.reading.fetch import Fetcher
from tailrace.broker.security.principals import current_principal
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Buffer
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import InvalidRequestError, LimitExceededError, UnreadableBatchError
from tailrace.model.fetch import CommittedBatches, CorruptBatch, PartitionBatches, PartitionFetch, PartitionRecords
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.record import Record
from tailrace.model.security import SERVER, Principal
from tailrace.wire.batch import BatchHeader, read_header
from tailrace.wire.records import DecodedPart, decode_part, decoded_bound

_DECODED_INLINE_BYTES = 64 * KIB
_READ_BYTES = MIB
_RECORDS_BETWEEN_YIELDS = 1_000
"""Records that are decoded before other tasks run."""
_SHARES = 8
"""A read of many partitions gets at most this many times `_READ_BYTES`."""


class CommittedReader:
    """Reads committed batches and records of several partitions of a topic."""

    def __init__(self, fetcher: Fetcher, threads: ReadThreads, topics: Topics, answers: AnswerMemory, limits: Limits) -> None:
        self.answers = answers
        self._fetcher = fetcher
        self._threads = threads
        self._topics = topics
        self._limits = limits

    async def batches_of_many(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        answer: ReadAnswer | None = None,
        *,
        topic_uuid: UUID | None = None,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> dict[int, CommittedBatches]:
        """Return batches by partition, from the one that holds the offset on. Each partition gets an equal share of the bytes.

        With a UUID the topic must still be that one, and not a new one of the same name. The principal of the request needs
        `consume` on it.
        """
        self._topics.require("consume", topic)
        live = self._topics.get(topic, topic_uuid)
        budget = min(self._limits.fetch_bytes, _READ_BYTES if max_bytes is None else max_bytes)
        with self.answers.held(answer) as held:
            fetched = await self._fetch(topic, starts, budget, max_wait_ms, held, _stored_bytes, current_principal())
            held.keep(_stored_bytes(fetched))
            held.trim()
        found = {start.partition: _committed(each, start.offset) for start, each in zip(starts, fetched, strict=True)}
        for committed in found.values():
            if committed.batches:
                live.count_out(committed.batches)
        return found

    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        answer: ReadAnswer | None = None,
        *,
        topic_uuid: UUID | None = None,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> PartitionRecords:
        """Return decoded records of one partition from `offset` on."""
        read = await self.read_many(
            topic,
            [PartitionOffset(partition, offset)],
            answer,
            topic_uuid=topic_uuid,
            max_records=max_records,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
        )
        return read[partition]

    async def read_many(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        answer: ReadAnswer | None = None,
        *,
        topic_uuid: UUID | None = None,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        reader: Principal = SERVER,
    ) -> dict[int, PartitionRecords]:
        """Return decoded records by partition: up to `max_records` of each, which gets an equal share of the bytes.

        A batch that can't be decoded is an error if no partition has records before it. The reader needs `consume` on the
        topic, also as long as it waits; the server may read all.
        """
        limits = self._limits
        if not 0 < max_records <= limits.read_records:
            raise LimitExceededError(f"{max_records} records were asked for; read_records allows 1 to {limits.read_records}")
        live = self._topics.get(topic, topic_uuid)
        budget = _READ_BYTES * min(len(starts), _SHARES) if max_bytes is None else max_bytes

        def room_for(fetched: Sequence[PartitionBatches]) -> int:
            """Return the bytes of all batches, and of the first one decoded."""
            first = next((batch for each in fetched for batch in each.batches), None)
            return _stored_bytes(fetched) + (0 if first is None else self._bound(first, max_records))

        read: dict[int, PartitionRecords] = {}
        corrupt: UnreadableBatchError | None = None
        with self.answers.held(answer) as held:
            fetched = await self._fetch(topic, starts, budget, max_wait_ms, held, room_for, reader)
            for (number, offset), each in zip(starts, fetched, strict=True):
                try:
                    read[number] = await self._decoded(live, each, offset, max_records, held)
                except UnreadableBatchError as error:
                    corrupt = corrupt or error
                    read[number] = PartitionRecords((), offset, each.bounds, True)
            held.trim()
        if corrupt is not None and not any(each.records for each in read.values()):
            raise corrupt
        return read

    async def _fetch(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        max_bytes: int,
        max_wait_ms: int,
        answer: ReadAnswer,
        room_for: Callable[[Sequence[PartitionBatches]], int],
        reader: Principal,
    ) -> list[PartitionBatches]:
        share = max_bytes // len(starts)
        wanted = [PartitionFetch(topic, number, offset, share) for number, offset in starts]
        while True:
            fetched = await self._fetcher.fetch_committed(wanted, max_bytes, max_wait_ms, reader)
            room = room_for(fetched)
            if not room or answer.try_reserve(room):
                return fetched
            if answer.used:
                return [each._replace(batches=(), cursors=(), aborted=()) for each in fetched]
            # No batches are kept while it waits for memory; they are read again.
            del fetched
            await answer.reserve(room)

    async def _decoded(
        self, live: LiveTopic, fetched: PartitionBatches, offset: Offset, max_records: int, answer: ReadAnswer
    ) -> PartitionRecords:
        batches, cursors, next_offset, bounds = _committed(fetched, offset)
        records: list[Record] = []
        yielded_at = 0
        for batch, cursor in zip(batches, cursors, strict=True):
            header = read_header(batch)
            if not answer.try_reserve(self._bound(batch, max_records - len(records))):
                next_offset = Offset(max(offset, header.base_offset))
                break
            try:
                part = await self._decode(batch, header, cursor, offset, max_records - len(records), answer.left)
            except InvalidRequestError as error:
                last = header.base_offset + header.last_offset_delta
                bad = CorruptBatch(live.topic.name, fetched.partition, header.base_offset, last, str(error))
                answer.note(bad)
                if answer.skips_corrupt:
                    continue
                if not records:
                    raise bad.error from error
                next_offset = Offset(max(offset, header.base_offset))
                break
            records += part.records
            answer.keep(part.size)
            if part.is_cut:
                answer.is_cut = True
            if part.is_cut or len(records) == max_records:
                next_offset = Offset(records[-1].offset + 1)
                break
            if len(records) - yielded_at >= _RECORDS_BETWEEN_YIELDS:
                yielded_at = len(records)
                await asyncio.sleep(0)
        live.messages_out += len(records)
        live.bytes_out += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        return PartitionRecords(records, next_offset, bounds, next_offset < fetched.last_stable_offset)

    async def _decode(
        self, batch: Buffer, header: BatchHeader, cursor: Cursor, offset: Offset, most: int, most_bytes: int
    ) -> DecodedPart:
        first = max(0, offset - header.base_offset)
        decode = partial(decode_part, batch, self._limits, first=first, most=most, most_bytes=max(1, most_bytes), cursor=cursor)
        if len(batch) <= _DECODED_INLINE_BYTES and not header.codec:
            return decode()
        return await self._threads.run(decode)

    def _bound(self, batch: Buffer, most: int) -> int:
        return decoded_bound(batch, read_header(batch), self._limits, most)


def _stored_bytes(fetched: Sequence[PartitionBatches]) -> int:
    return sum(len(batch) for each in fetched for batch in each.batches)


def _committed(answer: PartitionBatches, offset: Offset) -> CommittedBatches:
    if answer.error is not None:
        raise answer.error
    next_offset = offset
    if answer.batches:
        last = read_header(answer.batches[-1])
        next_offset = Offset(max(offset, last.end_offset))
    cursor_of = {id(batch): cursor for batch, cursor in zip(answer.batches, answer.cursors, strict=True)}
    batches = list(committed_batches(answer.batches, answer.aborted))
    return CommittedBatches(batches, [cursor_of[id(batch)] for batch in batches], next_offset, answer.bounds)
