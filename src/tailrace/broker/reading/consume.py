"""Consume and ack: where a consumer reads, the same for every surface except Kafka's; and starting positions, for all surfaces.

Without a group a read stores nothing. With a group the committed offset tells where to begin. At first there is none: then the
requested start is committed before anything is read, so that records which arrive between the first read and the second are not
skipped. An explicit offset is always used and commits nothing. Reading never moves a committed offset; an ack does, and only
forwards. Offsets are those of Kafka's groups: a consumer here and a Kafka client continue where the other stopped.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.isolation import StableOffsets
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.security.principals import current_principal
from tailrace.broker.topics.patterns import PatternTopic
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import OffsetBounds
from tailrace.model.consume import (
    Acked,
    AckRequest,
    Consumed,
    ConsumedRecord,
    ConsumeRequest,
    GroupStart,
    PartitionOffset,
    ReadPosition,
)
from tailrace.model.errors import InvalidRequestError, NoCommittedOffsetError, OffsetOutOfRangeError
from tailrace.model.fetch import AtOffset, Isolation, PartitionRecords, StartAt, StartEdge
from tailrace.model.group import CommittedOffset, MemberIdentity, OffsetCommit
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.record_timestamps import first_record_at

_MAX_TIMESTAMP = (1 << 63) - 1


class Consumers:
    """Reads, acknowledges and resets on behalf of consumer groups."""

    def __init__(
        self,
        topics: Topics,
        positions: "Positions",
        offsets: GroupOffsets,
        groups: GroupCoordinator,
        reader: CommittedReader,
        limits: Limits,
        resolve_in_pattern: Callable[[PatternTopic, StartAt], Awaitable[Offset]],
    ) -> None:
        """`resolve_in_pattern` resolves a start in a pattern that is read as a topic."""
        self._resolve_in_pattern = resolve_in_pattern
        self._permissions = topics.permissions
        self._topics = topics
        self._positions = positions
        self._offsets = offsets
        self._groups = groups
        self._reader = reader
        self._limits = limits
        self._turn = 0

    async def consume(self, request: ConsumeRequest, answer: ReadAnswer | None = None) -> Consumed:
        """Return committed records in the order of their cursors, up to `limit`. Waits for the first one if there is none yet.

        The records reserve memory from `answer`, which is closed when they are sent. Needs `consume` on the topic, and on the
        group if there is one.
        """
        self._require(request.topic, request.group)
        live = self._topics.get(request.topic, request.topic_uuid)
        starts = await self._starts(live, request)
        now = asyncio.get_running_loop().time
        deadline = now() + request.wait_ms / 1000
        wait_ms = request.wait_ms
        while True:
            read = await self._reader.read_many(
                live.topic.name,
                self._rotated(starts),
                answer,
                topic_uuid=live.topic.uuid,
                max_records=request.limit,
                max_wait_ms=wait_ms,
                reader=current_principal(),
            )
            found = _merge(live, sorted(read.items()), request.limit)
            if found.records or all(start.offset == read[start.partition].next_offset for start in starts):
                return found
            # There were only records of aborted transactions or skipped batches: continue behind them.
            starts = [PartitionOffset(position.partition, position.next_offset) for position in found.positions]
            wait_ms = max(0, round((deadline - now()) * 1000))

    async def ack(self, request: AckRequest) -> Acked:
        """Commit durably that the group has processed everything up to an offset.

        Rejects offsets beyond the end, offsets before the committed one, and members that may not commit for the group.
        """
        self._require(request.topic, request.group)
        live = self._topics.get(request.topic, request.topic_uuid)
        bounds = self._positions.bounds(request.topic, request.partition)
        if not 0 <= request.upto_offset < bounds.end:
            last = f"ends with offset {bounds.end - 1}" if bounds.end else "is empty"
            raise OffsetOutOfRangeError(
                f"offset {request.upto_offset} can't be acked: partition {request.partition} of {live.topic.name!r} {last}",
                *bounds,
            )
        committed = Offset(request.upto_offset + 1)
        await self._offsets.commit(
            request.group,
            [OffsetCommit(live.topic.name, request.partition, committed, topic_uuid=live.topic.uuid)],
            check=lambda: self._groups.check_commit(request.group, request.member),
        )
        return Acked(live.topic.name, request.group, request.partition, Offset(request.upto_offset), committed)

    async def begin(
        self, group: str, topic: str, partitions: Sequence[int], start: StartAt | None, member: MemberIdentity
    ) -> GroupStart:
        """Return where the group continues, for members that track their positions themselves.

        Where the group has committed nothing, the start is committed first, even if it is an offset; without a start that is an
        error. The returned offsets are not checked against retention.
        """
        self._require(topic, group)
        live = self._topics.get(topic)
        check_group_name(group, self._limits)
        numbers = [live.partition(number).number for number in partitions]
        if start is None:
            self._check_committed(live, numbers, group)
        await self._begin(live, numbers, ConsumeRequest(topic, group, start=start, member=member), group)
        positions = [PartitionOffset(number, self._committed_or_raise(live, number, group).offset) for number in numbers]
        return GroupStart(live.topic.name, live.topic.uuid, positions)

    async def commit(self, group: str, commits: Sequence[OffsetCommit], member: MemberIdentity) -> None:
        """Commit these offsets for the group, in all partitions or in none. Never backwards."""
        self._permissions.require("consume", "group", group)
        for topic in {commit.topic for commit in commits}:
            self._topics.require("consume", topic)
        await self._offsets.commit(group, commits, check=lambda: self._groups.check_commit(group, member))

    async def reset(self, group: str, topic: str, partition: int | None, start: StartAt) -> Sequence[PartitionOffset]:
        """Set the offsets of a group without members, forwards or backwards, in one partition or in all."""
        self._require(topic, group)
        live = self._topics.readable(topic)
        numbers = _partition_numbers(live, partition)
        _check_one_partition(live, numbers, start)
        commits = []
        for number in numbers:
            if isinstance(live, PatternTopic):
                offset = await self._resolve_in_pattern(live, start)
            else:
                offset = await self._positions.resolve(topic, number, start, isolation=Isolation.READ_COMMITTED)
            commits.append(OffsetCommit(live.topic.name, number, offset, topic_uuid=live.topic.uuid))
        await self._offsets.commit(group, commits, reset=True, check=lambda: self._groups.check_commit(group, MemberIdentity()))
        return [PartitionOffset(commit.partition, commit.offset) for commit in commits]

    def _require(self, topic: str, group: str | None) -> None:
        """Check the rights of a consumer, before anything is looked up."""
        if self._permissions.is_on:
            if group is not None:
                self._permissions.require("consume", "group", group)
            self._topics.require("consume", topic)

    async def _starts(self, live: LiveTopic, request: ConsumeRequest) -> list[PartitionOffset]:
        if request.group is not None:
            check_group_name(request.group, self._limits)
        if request.positions:
            return _explicit_positions(live, request)
        numbers = _partition_numbers(live, request.partition)
        _check_one_partition(live, numbers, request.start)
        if request.group is None or isinstance(request.start, AtOffset):
            return [await self._resolve(live, number, request.start) for number in numbers]
        await self._begin(live, numbers, request, request.group)
        return [self._committed(live, number, request.group) for number in numbers]

    async def _begin(self, live: LiveTopic, numbers: Sequence[int], request: ConsumeRequest, group: str) -> None:
        """Commit the start in the partitions in which the group has committed nothing."""
        name = live.topic.name
        new = [number for number in numbers if self._position(group, name, number) is None]
        if new:
            starts = [await self._resolve(live, number, request.start) for number in new]
            await self._offsets.begin(
                group,
                [OffsetCommit(name, number, offset, topic_uuid=live.topic.uuid) for number, offset in starts],
                check=lambda: self._groups.check_commit(group, request.member),
            )

    def _committed(self, live: LiveTopic, number: int, group: str) -> PartitionOffset:
        name = live.topic.name
        committed = self._committed_or_raise(live, number, group)
        bounds = self._positions.bounds(name, number)
        if committed.offset < bounds.start:
            raise OffsetOutOfRangeError(
                f"group {group!r} is at offset {committed.offset} of partition {number} of {name!r}, and retention has deleted"
                f" the records before {bounds.start}; ack up to {bounds.start - 1} or reset the group to continue",
                *bounds,
            )
        if committed.offset > bounds.end:
            raise OffsetOutOfRangeError(
                f"group {group!r} is at offset {committed.offset} of partition {number} of {name!r}, which ends at"
                f" {bounds.end}: a Kafka client has committed that; reset the group to continue",
                *bounds,
            )
        return PartitionOffset(number, committed.offset)

    def _position(self, group: str, topic: str, number: int) -> CommittedOffset | None:
        """Return the committed offset of the group. A negative one, which a Kafka client can commit, counts as none."""
        committed = self._offsets.committed(group, topic, number)
        return None if committed is None or committed.offset < 0 else committed

    def _check_committed(self, live: LiveTopic, numbers: Sequence[int], group: str) -> None:
        """Raise `NoCommittedOffsetError` if the group has committed nothing in one of the partitions."""
        new = [number for number in numbers if self._position(group, live.topic.name, number) is None]
        if new:
            raise NoCommittedOffsetError(
                f"group {group!r} has committed nothing in partitions {new} of {live.topic.name!r}, and no start is given;"
                f" set one with `tailrace groups reset {group} {live.topic.name} --to earliest`, or latest or an offset"
            )

    def _committed_or_raise(self, live: LiveTopic, number: int, group: str) -> CommittedOffset:
        # Raises if the topic was deleted, or created again, while the caller waited.
        self._topics.get(live.topic.name, live.topic.uuid)
        committed = self._position(group, live.topic.name, number)
        if committed is None:
            raise InvalidRequestError(f"group {group!r} was deleted during this read of {live.topic.name!r}; read again")
        return committed

    async def _resolve(self, live: LiveTopic, number: int, start: StartAt | None) -> PartitionOffset:
        offset = await self._positions.resolve(
            live.topic.name, number, start or StartEdge.EARLIEST, isolation=Isolation.READ_COMMITTED
        )
        return PartitionOffset(number, offset)

    def _rotated(self, starts: Sequence[PartitionOffset]) -> Sequence[PartitionOffset]:
        """Rotate the partitions by one for each read, so that none starves when there is more than fits into one read."""
        self._turn += 1
        first = self._turn % len(starts)
        return [*starts[first:], *starts[:first]]


class TimedOffset(NamedTuple):
    offset: Offset
    timestamp: int


class Positions:
    """Resolves a start (earliest, latest, an offset or a time) to the offset that it means now.

    To look one up needs `describe` on the topic. `bounds` and `size` are not checked: who shows them asks `topics.require`.
    """

    def __init__(self, store: Store, threads: ReadThreads, topics: Topics, stable: StableOffsets, limits: Limits) -> None:
        self._store = store
        self._threads = threads
        self._topics = topics
        self._stable = stable
        self._limits = limits

    async def resolve(
        self, topic: str, partition: int, start: StartAt, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Offset:
        """Return the offset to read from. For `latest`, and for a time after the last record, that is the end.

        For readers of committed records the end is the last stable offset.
        """
        self._topics.require("describe", topic)
        target = self._topics.get(topic).partition(partition)
        bounds = self._store.bounds(target)
        if start is StartEdge.EARLIEST:
            return bounds.start
        end = self._stable.of(target, bounds) if isolation else bounds.end
        if start is StartEdge.LATEST:
            return end
        if isinstance(start, AtOffset):
            if not bounds.start <= start.offset <= bounds.end:
                raise OffsetOutOfRangeError(
                    f"partition {partition} of {topic!r} holds offsets {bounds.start} to {bounds.end}, not {start.offset}",
                    bounds.start,
                    bounds.end,
                )
            return Offset(start.offset)
        found = await self._first_at(target, start.timestamp_ms)
        return end if found is None or (isolation and found.offset >= end) else found.offset

    async def at_time(
        self, topic: str, partition: int, timestamp_ms: int, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> TimedOffset | None:
        """Return the first record with this timestamp or a later one among those that are visible at this isolation level."""
        self._topics.require("describe", topic)
        target = self._topics.get(topic).partition(partition)
        found = await self._first_at(target, timestamp_ms)
        if found is not None and isolation and found.offset >= self._stable.of(target, self._store.bounds(target)):
            return None
        return found

    async def newest(self, topic: str, partition: int) -> TimedOffset | None:
        """Return the first record with the highest timestamp of the partition."""
        self._topics.require("describe", topic)
        target = self._topics.get(topic).partition(partition)
        return await self._threads.run(self._look_up_newest, target)

    def bounds(self, topic: str, partition: int) -> OffsetBounds:
        """Return the first offset of the partition and its end."""
        return self._store.bounds(self._topics.get(topic).partition(partition))

    def size(self, topic: str, partition: int) -> int:
        """Return the bytes of the partition's batches."""
        return self._store.size(self._topics.get(topic).partition(partition))

    async def _first_at(self, partition: PartitionId, timestamp_ms: int) -> TimedOffset | None:
        return await self._threads.run(self._look_up, partition, timestamp_ms)

    def _look_up_newest(self, partition: PartitionId) -> TimedOffset | None:
        # The index finds the first batch with a time or a later one, so the highest time is found by bisection.
        low, high = -1, _MAX_TIMESTAMP
        while low < high:
            middle = (low + high + 1) // 2
            if self._store.batch_for_time(partition, middle) is None:
                high = middle - 1
            else:
                low = middle
        return None if low < 0 else self._look_up(partition, low)

    def _look_up(self, partition: PartitionId, timestamp_ms: int) -> TimedOffset | None:
        base = self._store.batch_for_time(partition, timestamp_ms)
        if base is None:
            return None
        first = max(base, self._store.bounds(partition).start)
        batches = self._store.fetch(partition, first, 1).batches
        if batches:
            start = read_header(batches[0]).base_offset
            try:
                found = first_record_at(batches[0], timestamp_ms, self._limits, first=max(0, first - start))
            except InvalidRequestError:
                found = None
            if found is not None:
                return TimedOffset(Offset(start + found.delta), found.timestamp)
        # The header has a later time than the records. Starting at the batch returns too much rather than too little.
        return TimedOffset(first, timestamp_ms)


def _partition_numbers(live: LiveTopic, partition: int | None) -> Sequence[int]:
    return range(len(live.partitions)) if partition is None else [live.partition(partition).number]


def _explicit_positions(live: LiveTopic, request: ConsumeRequest) -> list[PartitionOffset]:
    if request.partition is not None or request.start is not None:
        raise InvalidRequestError("the request has positions; leave out the partition and the start")
    numbers = {live.partition(position.partition).number for position in request.positions}
    if len(numbers) < len(request.positions):
        raise InvalidRequestError("the positions name a partition twice")
    return list(request.positions)


def _check_one_partition(live: LiveTopic, numbers: Sequence[int], start: StartAt | None) -> None:
    if isinstance(start, AtOffset) and len(numbers) > 1:
        raise InvalidRequestError(
            f"topic {live.topic.name!r} has {len(numbers)} partitions; name the one that offset {start.offset} belongs to"
        )


def _merge(live: LiveTopic, read: Sequence[tuple[int, PartitionRecords]], limit: int) -> Consumed:
    """Return the first records of all partitions by cursor. The rest is left for the next read.

    The merge ends where the first partition with unread records ends, so that no later record overtakes those.
    """
    merged = [ConsumedRecord(number, record) for number, part in read for record in part.records]
    if len(read) > 1:
        cut_off = [part.records[-1].cursor for _, part in read if part.records and part.has_more]
        horizon = min(cut_off, default=None)
        merged = [found for found in merged if horizon is None or found.record.cursor <= horizon]
        merged.sort(key=lambda found: found.record.cursor)
        merged = merged[:limit]
    taken = Counter(found.partition for found in merged)
    positions = []
    has_more = False
    for number, part in read:
        rest = part.records[taken[number] :]
        positions.append(ReadPosition(number, rest[0].offset if rest else part.next_offset, *part.bounds))
        has_more = has_more or bool(rest) or part.has_more
    return Consumed(live.topic.name, merged, positions, has_more, live.topic.uuid)
