"""Reads what is committed: without the records of transactions that are open or were aborted, as batches or decoded.

Kafka's clients leave such records out themselves (`Fetcher.fetch` tells them which); here it is done for everybody else. An
error of a partition is raised, and what goes out is counted.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from tailrace.broker.reading.fetch import Fetcher
from tailrace.broker.reading.reader import Reader
from tailrace.broker.topics.live_topic import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.committed import committed_batches
from tailrace.model.changes import Buffer
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import CorruptBatchError, InvalidRequestError, LimitExceededError
from tailrace.model.fetch import CommittedBatches, PartitionBatches, PartitionFetch, PartitionRecords
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.record import Record
from tailrace.wire.batch import read_header
from tailrace.wire.records import decode_batch

_DECODED_INLINE_BYTES = 64 * KIB
_READ_BYTES = MIB
_RECORDS_AT_A_STRETCH = 1_000
"""Records decoded before others get their turn."""
_SHARES = 8
"""How many such parts a read of many partitions may have in all."""


class CommittedReader:
    def __init__(self, fetcher: Fetcher, reader: Reader, topics: Topics, limits: Limits) -> None:
        self._fetcher = fetcher
        self._reader = reader
        self._topics = topics
        self._limits = limits

    async def batches(
        self, topic: str, partition: int, offset: Offset, *, max_bytes: int | None = None, max_wait_ms: int = 0
    ) -> CommittedBatches:
        """Batches from the one that holds `offset` on."""
        found = await self.batches_of_many(
            topic, [PartitionOffset(partition, offset)], max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )
        return found[partition]

    async def batches_of_many(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        *,
        topic_uuid: UUID | None = None,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> dict[int, CommittedBatches]:
        """The same for several partitions of a topic, by their numbers. Of the bytes each gets an equal share.

        With a UUID the topic must still be that one, and not another that was made again under its name.
        """
        live = self._topics.get(topic, topic_uuid)
        budget = min(self._limits.fetch_bytes, _READ_BYTES if max_bytes is None else max_bytes)
        answers = await self._fetch(topic, starts, budget, max_wait_ms)
        found = {start.partition: _committed(answer, start.offset) for start, answer in zip(starts, answers, strict=True)}
        for committed in found.values():
            if committed.batches:
                live.count_out(committed.batches)
        return found

    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> PartitionRecords:
        """Decoded records from `offset` on."""
        read = await self.read_many(
            topic,
            [PartitionOffset(partition, offset)],
            max_records=max_records,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
        )
        return read[partition]

    async def read_many(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        *,
        topic_uuid: UUID | None = None,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> dict[int, PartitionRecords]:
        """The same for several partitions of a topic: from each up to `max_records`, and of the bytes an equal share."""
        limits = self._limits
        if not 0 < max_records <= limits.read_records:
            raise LimitExceededError(f"{max_records} records were asked for; read_records allows 1 to {limits.read_records}")
        live = self._topics.get(topic, topic_uuid)
        budget = _READ_BYTES * min(len(starts), _SHARES) if max_bytes is None else max_bytes
        answers = await self._fetch(topic, starts, budget, max_wait_ms)
        return {
            number: await self._decoded(live, answer, offset, max_records)
            for (number, offset), answer in zip(starts, answers, strict=True)
        }

    async def _fetch(
        self, topic: str, starts: Sequence[PartitionOffset], max_bytes: int, max_wait_ms: int
    ) -> list[PartitionBatches]:
        share = max_bytes // len(starts)
        wanted = [PartitionFetch(topic, number, offset, share) for number, offset in starts]
        return await self._fetcher.fetch_committed(wanted, max_bytes, max_wait_ms)

    async def _decoded(self, live: LiveTopic, answer: PartitionBatches, offset: Offset, max_records: int) -> PartitionRecords:
        batches, cursors, next_offset, bounds = _committed(answer, offset)
        records: list[Record] = []
        held_up = 0
        for batch, cursor in zip(batches, cursors, strict=True):
            try:
                records += await self._decode(batch, cursor, offset, max_records - len(records))
            except InvalidRequestError as error:
                if records:
                    next_offset = Offset(records[-1].offset + 1)
                    break
                header = read_header(batch)
                last = header.base_offset + header.last_offset_delta
                raise CorruptBatchError(
                    f"offsets {header.base_offset} to {last} of {live.topic.name!r}, partition {answer.partition}, can't be"
                    f" decoded: {error}. Go on at {last + 1}"
                ) from error
            if len(records) == max_records:
                next_offset = Offset(records[-1].offset + 1)
                break
            if len(records) - held_up >= _RECORDS_AT_A_STRETCH:
                held_up = len(records)
                await asyncio.sleep(0)
        live.messages_out += len(records)
        live.bytes_out += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        return PartitionRecords(records, next_offset, bounds, next_offset < answer.last_stable_offset)

    async def _decode(self, batch: Buffer, cursor: Cursor, offset: Offset, most: int) -> list[Record]:
        header = read_header(batch)
        first = max(0, offset - header.base_offset)
        if len(batch) <= _DECODED_INLINE_BYTES and not header.codec:
            return decode_batch(batch, self._limits, first=first, most=most, cursor=cursor)
        return await self._reader.in_thread(decode_batch, batch, self._limits, first=first, most=most, cursor=cursor)


def _committed(answer: PartitionBatches, offset: Offset) -> CommittedBatches:
    if answer.error is not None:
        raise answer.error
    next_offset = offset
    if answer.batches:
        last = read_header(answer.batches[-1])
        next_offset = Offset(max(offset, last.base_offset + last.records))
    cursor_of = {id(batch): cursor for batch, cursor in zip(answer.batches, answer.cursors, strict=True)}
    batches = list(committed_batches(answer.batches, answer.aborted))
    return CommittedBatches(batches, [cursor_of[id(batch)] for batch in batches], next_offset, answer.bounds)
