"""Redrive: dead letters are put back into the topics they come from, each once.

The letter stays in the dead-letter topic. That it was put back is stored in the frame that appends the record, as a set of
offsets for each partition of the dead-letter topic. A crash in between, or the same command again, puts nothing back twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, Proposal
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.publishing.validation import reserved_topic_error
from tailrace.broker.queues.dead_letters import encode_append, partition_by_key
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError, OffsetOutOfRangeError, UnknownTopicError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import MIB
from tailrace.model.offset_ranges import OffsetRanges, decode_offset_ranges
from tailrace.model.queue import (
    CAUSE_HEADER,
    DELIVERIES_HEADER,
    GROUP_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_TOPIC_HEADER,
    REDRIVEN_HEADER,
    dead_letter_topic,
)
from tailrace.model.record import Record

_BATCH_RECORDS = 500
_BATCH_BYTES = 4 * MIB
_DROPPED_HEADERS = frozenset((CAUSE_HEADER, GROUP_HEADER, DELIVERIES_HEADER, REDRIVEN_HEADER))


class Redriven(NamedTuple):
    put_back: int
    left_out: int
    """Letters whose headers do not name this topic as their origin, such as those of routes."""


class Redrives:
    def __init__(self, context: PublishContext, committer: Committer, committed: CommittedReader) -> None:
        self._context = context
        self._committer = committer
        self._committed = committed
        self.put_back = 0

    def letters_of(self, topic: str) -> LiveTopic:
        """Return the topic that holds the dead letters of this one. Needs `consume` on them, and `publish` on the topic."""
        topics = self._context.topics
        topics.require("publish", topic)
        live = topics.get(topic)
        letters = dead_letter_topic(live.topic.name, self._context.limits)
        topics.require("consume", letters)
        if live.is_reserved:
            raise reserved_topic_error(live.topic.name)
        return topics.get(letters)

    def first_left(self, letters: LiveTopic) -> list[Offset]:
        """Return, for each partition of a dead-letter topic, the offset of the first letter that was not put back."""
        return [self._done(each).first_missing(self._context.store.bounds(each).start) for each in letters.partitions]

    def all_left(self, letters: LiveTopic) -> Iterator[tuple[int, Offset]]:
        """Yield partition and offset of every letter that was not put back."""
        for partition in letters.partitions:
            done = self._done(partition)
            start, end = self._context.store.bounds(partition)
            at = done.first_missing(start)
            while at < end:
                yield partition.number, at
                at = done.first_missing(at + 1)

    async def redrive(self, topic: str, places: Iterable[tuple[int, int]], limit: int | None = None) -> Redriven:
        """Put back the letters at these partitions and offsets, in order, up to `limit`. Earlier ones are skipped."""
        target = self._context.topics.get(topic)
        letters = self.letters_of(topic)
        put_back = left_out = 0
        batch: list[tuple[PartitionId, Record]] = []
        # The letters take their room in memory until they are put back.
        with self._committed.answers.answer(max_bytes=_BATCH_BYTES) as read:
            for number, offset in places:
                if limit is not None and put_back + len(batch) >= limit:
                    break
                partition = letters.partition(number)
                letter = await self._letter(letters, partition, Offset(offset), read)
                if read.is_cut or len(batch) == _BATCH_RECORDS:
                    put_back += await self._put_back(target, batch)
                    batch = []
                    read.forget(0)
                    letter = letter or await self._letter(letters, partition, Offset(offset), read)
                if letter is None:
                    continue
                is_refused = target.needs_keys and letter.key is None
                if is_refused or _header(letter, ORIGIN_TOPIC_HEADER) != target.topic.name.encode():
                    left_out += 1
                    continue
                batch.append((partition, letter))
            if batch:
                put_back += await self._put_back(target, batch)
        return Redriven(put_back, left_out)

    async def _put_back(self, target: LiveTopic, batch: list[tuple[PartitionId, Record]]) -> int:
        put_back = await self._committer.submit(_PutBack(self._context, target, batch))
        self.put_back += put_back
        return put_back

    async def _letter(self, letters: LiveTopic, partition: PartitionId, offset: Offset, answer: ReadAnswer) -> Record | None:
        """Return the letter, or `None` if it was put back, is not in the log any more, or if there is no memory for it."""
        if offset in self._done(partition):
            return None
        try:
            topic = letters.topic
            read = await self._committed.read(
                topic.name, partition.number, offset, answer, topic_uuid=topic.uuid, max_records=1
            )
        except OffsetOutOfRangeError:
            return None
        return next((record for record in read.records if record.offset == offset), None)

    def _done(self, partition: PartitionId) -> OffsetRanges:
        return decode_offset_ranges(self._context.store.get(keys.redriven_key(partition)))


class _PutBack(Proposal[int]):
    __slots__ = ("_appends", "_batch", "_context", "_target")

    def __init__(self, context: PublishContext, target: LiveTopic, batch: Sequence[tuple[PartitionId, Record]]) -> None:
        self._context = context
        self._target = target
        self._batch = batch
        self._appends: list[Append] = []

    @property
    def held_bytes(self) -> int:
        return sum(len(letter.value or b"") + len(letter.key or b"") for _, letter in self._batch)

    def decide(self) -> Changes | None:
        context = self._context
        topic = self._target.topic
        if context.topics.by_id(topic.id) is None:
            # There may be another topic of this name by now; the letters are not meant for it.
            raise UnknownTopicError(f"the topic {topic.name!r} was deleted while dead letters were put back into it")
        draft = Draft(context.store)
        done: dict[PartitionId, OffsetRanges] = {}
        records: dict[PartitionId, list[Record]] = {}
        for source, letter in self._batch:
            if source not in done:
                done[source] = decode_offset_ranges(draft.latest(keys.redriven_key(source)))
                done[source].forget_below(context.store.bounds(source).start)
            if letter.offset not in done[source]:
                done[source].add(letter.offset)
                records.setdefault(_partition_for(self._target, letter), []).append(_restored(letter))
        if records:
            self._target.check_takes_records()
        self._appends = []
        for partition, restored in records.items():
            append = encode_append(self._target, partition, restored, context.clock.now_ms(), draft)
            draft.append(append)
            self._appends.append(append)
        if not self._appends:
            return None
        for source, ranges in done.items():
            _check_room(ranges, context.limits.redriven_ranges)
            draft.put(keys.redriven_key(source), ranges.encode())
        return draft.changes()

    def settled(self, receipt: CommitReceipt | None) -> int:
        for append in self._appends:
            self._context.arrived(self._target, append.partition, append.records, len(append.batch))
        return sum(append.records for append in self._appends)


def _check_room(ranges: OffsetRanges, allowed: int) -> None:
    if len(ranges) > allowed:
        raise LimitExceededError(
            f"the dead letters that were put back would form {len(ranges)} separate ranges of offsets, more than"
            f" redriven_ranges allows ({allowed}); first put back those in between, without WHERE"
        )


def _restored(letter: Record) -> Record:
    """Return the record to append: it keeps the headers of its origin and counts how often it was put back."""
    before = _header(letter, REDRIVEN_HEADER) or b"0"
    times = int(before) + 1 if before.isdigit() and len(before) < 10 else 1
    kept = [(name, value) for name, value in letter.headers if name not in _DROPPED_HEADERS]
    return letter._replace(headers=[*kept, (REDRIVEN_HEADER, str(times).encode())])


def _partition_for(live: LiveTopic, letter: Record) -> PartitionId:
    """Return the partition that the letter comes from or, if the topic has fewer partitions now, the one of its key."""
    number = _header(letter, ORIGIN_PARTITION_HEADER) or b""
    if number.isdigit() and int(number) < len(live.partitions):
        return live.partitions[int(number)]
    return partition_by_key(live, letter)


def _header(record: Record, name: str) -> bytes | None:
    return next((value for each, value in record.headers if each == name), None)
