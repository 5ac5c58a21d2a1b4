"""Reads patterns as topics: all records of all topics that match, in the order of the log, for Kafka's fetch requests.

The offset of a record is its cursor. Offsets rise and have gaps, as in compacted topics, so a consumer resumes by its offset
whatever happens to the topics. Stored batches are served as they are, with the cursor as their base offset; with several
partitions each gets the records whose keys belong to it. Which records are visible is decided as for subscriptions: only
committed ones, in order, up to the first open transaction.

A pattern that was fetched is watched at the end of the log for a while (`SubscriptionTail`): the newest batches come from
memory, and a matching commit wakes a waiting fetch at once. Further back the log is read in the reader threads. A fetch in a
range without matching records is answered with a marker that moves the client to its end.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.reading.fetch import PatternFetch, rejected
from tailrace.broker.reading.unchecked import UncheckedBatches
from tailrace.broker.security.permissions import Permissions
from tailrace.broker.subscriptions.pattern_positions import PatternPositions
from tailrace.broker.subscriptions.shared_batch import BatchVisibility, SharedBatch
from tailrace.broker.subscriptions.subscriptions import Subscriptions
from tailrace.broker.subscriptions.tail import SubscriptionTail
from tailrace.broker.subscriptions.watched_patterns import MIN_SCAN_BYTES, WatchedPattern, WatchedPatterns
from tailrace.broker.topics.patterns import PatternTopic
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Buffer, OffsetBounds
from tailrace.model.errors import OffsetOutOfRangeError, TailraceError, UnknownPartitionError
from tailrace.model.fetch import PartitionBatches, PartitionFetch
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.security import Principal
from tailrace.wire.batch_split import Slices, assemble_part
from tailrace.wire.control import encode_skip
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.payload_references import is_payload_reference

_SEARCH_BYTES = 32 * MIB
"""After reading this much of the log without a match, a fetch is answered, so that its client does not give up."""
_COPIED_BYTES = 4 * KIB
_SPLIT_INLINE_BYTES = 16 * KIB
_BASE_OFFSET_BYTES = 8


class PatternReader:
    """Makes reads of patterns for the `Fetcher`."""

    def __init__(
        self,
        watched: WatchedPatterns,
        positions: PatternPositions,
        subscriptions: Subscriptions,
        tail: SubscriptionTail,
        unchecked: UncheckedBatches,
        permissions: Permissions,
        limits: Limits,
    ) -> None:
        self.permissions = permissions
        self.watched = watched
        self.positions = positions
        self.subscriptions = subscriptions
        self.tail = tail
        self.unchecked = unchecked
        self.limits = limits

    def fetch_of(self, pattern: PatternTopic, request: PartitionFetch, reader: Principal) -> PatternFetch:
        """Return a read of one partition, of the topics that the reader may consume. Raises `UnknownPartitionError`."""
        return _Fetch(self, pattern, pattern.partition(request.partition).number, request, reader)

    def may_read(self, reader: Principal, live: LiveTopic) -> bool:
        """Return whether somebody who reads a pattern gets the records of this topic."""
        return not self.permissions.is_on or self.permissions.allows(reader, "consume", "topic", live.topic.name)


class _Gathered(NamedTuple):
    """Batches for the answer."""

    batches: Sequence[Buffer]
    size: int
    next_cursor: Cursor
    """Nothing else is to be sent before it."""
    is_blocked: bool
    """Whether an open transaction begins there."""
    own_bytes: int
    sent: Sequence[tuple[LiveTopic, int, int]]
    """Topics with the records and bytes of each batch."""


class _Fetch(PatternFetch):
    def __init__(
        self, reader: PatternReader, pattern: PatternTopic, number: int, request: PartitionFetch, principal: Principal
    ) -> None:
        self._reader = reader
        self._principal = principal
        self._pattern = pattern
        self._number = number
        self._request = request
        self._partitions = pattern.topic.partitions
        self._watched: WatchedPattern | None = None
        self._seen = (Cursor(0), 0)
        self._sent: Sequence[tuple[LiveTopic, int, int]] = ()
        self.place = PartitionId(TopicId(0), 0)

    @property
    def has_moved(self) -> bool:
        return self._watched is not None and self._seen != (self._watched.end, self._reader.watched.ended)

    def count_out(self) -> None:
        for live, records, size in self._sent:
            live.messages_out += records
            live.bytes_out += size

    async def read(self, budget: int, *, is_first: bool) -> PartitionBatches:
        request = self._request
        self._sent = ()
        self.own_bytes = 0
        try:
            watched = self._watched = await self._reader.watched.watch(self._pattern.pattern)
            self.place = watched.place
            self._seen = watched.end, self._reader.watched.ended
            offset = Cursor(request.offset)
            log_end = max(self._reader.positions.log_end, watched.end)
            if not 0 <= offset <= log_end:
                raise OffsetOutOfRangeError(
                    f"offset {offset} of {request.topic!r} is not in the log, which ends at {log_end}", 0, log_end
                )
            bounds = _bounds(self._reader, watched)
            most = max(0, min(budget, request.max_bytes))
            if not is_first and not most:
                return PartitionBatches(request.topic, request.partition, (), bounds, None, bounds.end)
            found = await self._read(watched, offset, most, is_first)
        except TailraceError as error:
            return rejected(request, error)
        bounds = _bounds(self._reader, watched)
        batches = found.batches
        stable = bounds.end
        if found.is_blocked:
            watched.is_blocked = True
            stable = Offset(found.next_cursor)
        skip_to = min(found.next_cursor, bounds.end)
        if not batches and offset < skip_to:
            batches = (encode_skip(skip_to),)
        self.own_bytes = found.own_bytes
        self._sent = found.sent
        return PartitionBatches(request.topic, request.partition, batches, bounds, None, stable)

    async def _read(self, watched: WatchedPattern, offset: Cursor, most: int, is_first: bool) -> _Gathered:
        reader, tail = self._reader, self._reader.tail
        searched = 0
        position = watched.next_match(offset)
        while True:
            if tail.holds(watched.subscribed, position):
                batches, end = tail.kept_since(position), tail.end
                return await self._gather(watched, batches, position, max(position, end), most, is_first, is_shared=True)
            # What would not fit into the answer is not read, until there was nothing in a whole read.
            size = watched.scan_bytes if searched else max(MIN_SCAN_BYTES, min(watched.scan_bytes, most))
            scan = await reader.watched.scan(watched, position, size, is_kept=self._partitions > 1)
            await reader.subscriptions.turns.next()
            found = await self._gather(watched, scan.batches, position, scan.end, most, is_first, is_shared=False)
            searched += size
            if found.batches or found.is_blocked or searched >= _SEARCH_BYTES or found.next_cursor <= position:
                return found
            position = watched.next_match(found.next_cursor)

    async def _gather(
        self,
        watched: WatchedPattern,
        batches: Sequence[SharedBatch],
        position: Cursor,
        end: Cursor,
        most: int,
        is_first: bool,
        *,
        is_shared: bool,
    ) -> _Gathered:
        """Return what is visible of these batches, from the position on. No other batch matches up to `end`."""
        found: list[Buffer] = []
        sent: list[tuple[LiveTopic, int, int]] = []
        size = own_bytes = 0
        for batch in batches:
            live = watched.subscribed.topic_of(batch.partition) if batch.end > position else None
            if live is None or not self._reader.may_read(self._principal, live):
                continue
            visibility = self._reader.subscriptions.visibility(batch)
            if visibility is BatchVisibility.UNDECIDED:
                return _Gathered(found, size, max(position, batch.cursor), True, own_bytes, sent)
            if visibility is BatchVisibility.HIDDEN:
                continue
            at = Cursor(max(position, batch.cursor))
            try:
                start = self._reader.positions.start_of(batch.partition)
            except UnknownPartitionError:
                continue
            if start > batch.base_offset:
                # Retention or a client has deleted these records while the batch was kept in memory, or a part of it.
                at = Cursor(max(at, batch.cursor + start - batch.base_offset))
                if at >= batch.end:
                    continue
            if (found or not is_first) and size + len(batch.data) > most and self._partitions == 1:
                return _Gathered(found, size, at, False, own_bytes, sent)
            data = batch.data
            try:
                if batch.cursor < self._reader.unchecked.end or is_payload_reference(data):
                    data = await self._readable(batch, live)
                if self._partitions == 1 and start <= batch.base_offset:
                    parts, records = _at_cursor(data, batch.cursor), batch.end - at
                else:
                    parts, records = await self._part(batch, live, data, at)
            except (OffsetOutOfRangeError, UnknownPartitionError):
                # Retention or a deletion removed the record before its payload was read.
                continue
            except TailraceError:
                if found:
                    return _Gathered(found, size, at, False, own_bytes, sent)
                raise
            added = sum(map(len, parts))
            if not records:
                continue
            if (found or not is_first) and size + added > most:
                return _Gathered(found, size, at, False, own_bytes, sent)
            found += parts
            size += added
            own_bytes += 0 if is_shared and data is batch.data and self._partitions == 1 else added
            sent.append((live, records, added))
        return _Gathered(found, size, end, False, own_bytes, sent)

    async def _readable(self, batch: SharedBatch, live: LiveTopic) -> Buffer:
        """Return the batch with its payload. Raises if it can't be decoded."""
        reader = self._reader
        data = batch.data
        await reader.unchecked.readable(live.topic.name, batch.partition, (data,), (batch.cursor,))
        if not is_payload_reference(data):
            return data
        read = reader.subscriptions.reader
        return await read.threads.run(read.expansion.batch, batch.partition, data)

    async def _part(self, batch: SharedBatch, live: LiveTopic, data: Buffer, at: Cursor) -> tuple[Sequence[Buffer], int]:
        """Return a batch of the records of this partition from the cursor on, and how many they are."""
        if len(data) <= _SPLIT_INLINE_BYTES and not batch.header.codec:
            slices = self._split(batch, live, data)
        else:
            slices = await self._reader.subscriptions.reader.threads.run(self._split, batch, live, data)
        batch.count_split()
        if at > batch.cursor:
            slices = [each for each in slices if batch.cursor + each[0] >= at]
        return ((assemble_part(data, slices, batch.cursor),), len(slices)) if slices else ((), 0)

    def _split(self, batch: SharedBatch, live: LiveTopic, data: Buffer) -> Slices:
        # Records without a key stay in order: those of one partition of a topic go to one partition of the pattern.
        origin = f"{live.topic.name}/{batch.partition.number}".encode()
        keyless = partition_for_key(origin, self._partitions)
        return batch.split(data, self._partitions, keyless, self._reader.limits)[self._number]


def _bounds(reader: PatternReader, watched: WatchedPattern) -> OffsetBounds:
    end = Offset(watched.end)
    return OffsetBounds(min(reader.positions.start, end), end)


def _at_cursor(data: Buffer, cursor: Cursor) -> Sequence[Buffer]:
    """Return the batch with its cursor as base offset. A large one is not copied, but comes in two pieces."""
    base = cursor.to_bytes(_BASE_OFFSET_BYTES)
    rest = memoryview(data)[_BASE_OFFSET_BYTES:]
    return (base + rest,) if len(data) < _COPIED_BYTES else (base, rest)
