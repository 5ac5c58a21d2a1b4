"""Committed offsets: one per group, topic and partition.

An offset moves back only by an explicit reset. Whether a member may commit for its group is checked by the coordinator, when
the commit is decided as well as when it is requested.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft
from tailrace.broker.groups.pending_offsets import PendingOffsets
from tailrace.broker.groups.registry import GroupNames
from tailrace.broker.topics.patterns import PatternTopic
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt, OffsetBounds
from tailrace.model.errors import (
    InvalidTopicNameError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    TailraceError,
    UnknownGroupError,
    UnknownTopicError,
)
from tailrace.model.group import CommittedOffset, Lag, OffsetCommit
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name, is_pattern_topic
from tailrace.model.security import Operation
from tailrace.store.contract import Store, scan_keys

_VALUE = Struct(">qiQ")

Check = Callable[[], None]
"""Raises if the change may no longer be made. Called when the change is decided."""


class GroupOffsets:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        names: GroupNames,
        pending: PendingOffsets,
        clock: Clock,
        limits: Limits,
        pattern_end: Callable[[PatternTopic], Offset],
    ) -> None:
        """`pattern_end` returns the end of what matches a pattern that is read as a topic; it may be called from any thread."""
        self._pattern_end = pattern_end
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._names = names
        self._pending = pending
        self._limits = limits

    def load(self) -> None:
        for key, _ in scan_keys(self._store, keys.GROUPS):
            self._names.store(keys.group_of(key))
        for key, value in scan_keys(self._store, keys.OFFSETS):
            self._names.committed(keys.read_offset_key(key)[1], _VALUE.unpack_from(value)[2])

    @property
    def groups(self) -> Sequence[str]:
        return list(self._names)

    def require_topic(self, operation: Operation, topic: str) -> None:
        """Raise `TopicForbiddenError` unless the principal of the request may do this to the topic."""
        self._topics.require(operation, topic)

    def names_of(self, topic: str) -> tuple[str, ...]:
        """Return all names by which members may subscribe to the topic."""
        known = self._topics.readable(topic).topic
        return (known.name,) if known.alias is None else (known.name, known.alias)

    async def commit(
        self, group: str, commits: Sequence[OffsetCommit], *, reset: bool = False, check: Check | None = None
    ) -> None:
        """Commit all offsets, or none if one is refused. Without `reset` none may be lower than before."""
        check_group_name(group, self._limits)
        await self.register_patterns(commits)
        await self._commit(group, [self._checked(commit) for commit in commits], reset, check)

    async def begin(self, group: str, commits: Sequence[OffsetCommit], *, check: Check | None = None) -> None:
        """Commit offsets of partitions where the group has committed nothing, or less than 0. The others stay unchanged."""
        check_group_name(group, self._limits)
        await self._commit(group, [self._checked(commit) for commit in commits], False, check, only_new=True)

    async def commit_each(
        self, group: str, commits: Sequence[OffsetCommit], *, reset: bool = False, check: Check | None = None
    ) -> list[TailraceError | None]:
        """Commit what can be committed, and return an error or `None` for each offset.

        Any offset is accepted, as in Kafka: also one beyond the end, or below 0, which clients take for none. Each needs
        `consume` on its topic.
        """
        check_group_name(group, self._limits)
        await self.register_patterns(commits)
        targets: list[_CommitTarget] = []
        refusals: list[TailraceError | None] = []
        for commit in commits:
            try:
                self._topics.require("consume", commit.topic)
                targets.append(self._checked(commit, any_offset=True))
            except TailraceError as error:
                refusals.append(error)
            else:
                refusals.append(None)
        await self._commit(group, targets, reset, check)
        return refusals

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return what the group has committed, or `None`. Needs `describe` on the topic."""
        self._topics.require("describe", topic)
        live = self._topics.readable(topic)
        at = live.partition(partition)
        # The name of an unknown group may be too long for a key.
        value = self._store.get(keys.offset_key(at, group)) if group in self._names else None
        return None if value is None else _decode(live, partition, value)

    def committed_by(self, group: str) -> list[CommittedOffset]:
        """Return all offsets of a group, by topic and partition, in topics that the principal of the request may describe."""
        found: list[CommittedOffset] = []
        if group not in self._names:
            return found
        for live in self._topics.all_readable():
            if not self._topics.may("describe", live.topic.name):
                continue
            prefix = keys.offsets_of_group(live.topic.id, group)
            for key, value in self._store.range(prefix):
                found.append(_decode(live, keys.read_offset_key(key)[0].number, value))
        return found

    def lag(self, group: str) -> list[Lag]:
        """Return the lag of a group, by topic and partition."""
        found = []
        for committed in self.committed_by(group):
            live = self._topics.readable(committed.topic)
            end = self._bounds(live, live.partition(committed.partition)).end
            found.append(Lag(committed.topic, committed.partition, committed.offset, end, _lag(end, committed.offset)))
        return found

    def all_committed(self) -> Iterator[tuple[str, CommittedOffset]]:
        """Yield every group with each of its offsets. May be called from any thread."""
        for key, value in scan_keys(self._store, keys.OFFSETS):
            partition, group = keys.read_offset_key(key)
            live = self._topics.readable_by_id(partition.topic_id)
            if live is not None:
                yield group, _decode(live, partition.number, value)

    def total_lags(self) -> dict[tuple[str, str], int]:
        """Return the lag of each group in each topic, for the metrics. May be called from any thread."""
        totals: dict[tuple[str, str], int] = {}
        for key, value in scan_keys(self._store, keys.OFFSETS):
            partition, group = keys.read_offset_key(key)
            live = self._topics.readable_by_id(partition.topic_id)
            if live is None:
                continue
            try:
                end = self._bounds(live, partition).end
            except UnknownTopicError:
                continue
            name = group, live.topic.name
            totals[name] = totals.get(name, 0) + _lag(end, _VALUE.unpack_from(value)[0])
        return totals

    def is_used(self, topic_id: TopicId) -> bool:
        """Return whether a group has offsets in the topic, or an open transaction has pending ones."""
        return bool(self._store.range(keys.offsets_of_topic(topic_id), limit=1)) or self._pending.has_topic(topic_id)

    def has_pending(self, group: str) -> bool:
        """Return whether an open transaction holds pending offsets of the group."""
        return self._pending.has_any(group)

    async def delete_group(self, group: str, *, check: Check | None = None) -> None:
        """Delete the group and all its offsets, also those of open transactions."""
        if group not in self._names:
            raise UnknownGroupError(f"there is no group {group!r}; `tailrace groups list` lists them")

        def decide() -> Changes:
            if check is not None:
                check()
            return Changes(
                drop_prefixes=tuple(keys.offsets_of_group(live.topic.id, group) for live in self._topics.all_readable()),
                puts=((keys.group_key(group), None), *self._pending.deletions(group)),
            )

        def settled(_: CommitReceipt | None) -> None:
            self._names.remove(group)
            self._pending.deleted(group)

        await self._committer.submit(Change(decide, settled))

    async def delete_offsets(
        self, group: str, topic: str, partitions: Sequence[int] | None = None, *, check: Check | None = None
    ) -> None:
        """Delete the group's offsets in these partitions of a topic, or in all, also those of open transactions."""
        live = self._topics.readable(topic)
        gone = live.partitions if partitions is None else [live.partition(number) for number in partitions]

        def decide() -> Changes:
            if check is not None:
                check()
            pending = self._pending.deletions(group, gone)
            if partitions is None:
                return Changes(drop_prefixes=(keys.offsets_of_group(live.topic.id, group),), puts=tuple(pending))
            return Changes(puts=(*((keys.offset_key(each, group), None) for each in gone), *pending))

        await self._committer.submit(Change(decide, lambda _: self._pending.deleted(group, gone)))

    def check(self, commit: OffsetCommit) -> PartitionId:
        """Return the partition of a Kafka client's commit. Raises if it can't be committed; any offset is accepted."""
        self._topics.require("consume", commit.topic)
        return self._checked(commit, any_offset=True).partition

    def write(self, draft: Draft, group: str, partition: PartitionId, commit: OffsetCommit) -> None:
        """Put an offset into a draft, whatever it was before, and the group if it is new."""
        now_ms = self._clock.now_ms()
        if draft.latest(keys.group_key(group)) is None:
            draft.put(keys.group_key(group), b"")
        draft.put(keys.offset_key(partition, group), _encode(commit, now_ms))
        self._names.committed(group, now_ms)

    async def _commit(
        self, group: str, targets: "list[_CommitTarget]", reset: bool, check: Check | None, *, only_new: bool = False
    ) -> None:
        if not targets:
            return
        is_held = False
        now_ms = self._clock.now_ms()

        def decide() -> Changes:
            nonlocal is_held
            if check is not None:
                check()
            if not is_held:
                self._names.hold(group)
                is_held = True
            draft = Draft(self._store)
            if self._store.latest(keys.group_key(group)) is None:
                draft.put(keys.group_key(group), b"")
            for live, partition, commit in targets:
                if self._topics.readable_by_id(partition.topic_id) is not live:
                    raise UnknownTopicError(f"topic {commit.topic!r} has been deleted")
                key = keys.offset_key(partition, group)
                if not reset and (before := draft.latest(key)) is not None:
                    committed = _VALUE.unpack_from(before)[0]
                    if only_new and committed >= 0:
                        continue
                    _check_forward(group, commit, committed)
                draft.put(key, _encode(commit, now_ms))
            self._names.committed(group, now_ms)
            return draft.changes()

        def settled(_: CommitReceipt | None) -> None:
            self._names.store(group)
            # Again, because a deletion that was settled in between has removed it.
            self._names.committed(group, now_ms)
            self._names.release(group)

        def failed() -> None:
            if is_held:
                self._names.release(group)

        await self._committer.submit(Change(decide, settled, failed))

    async def register_patterns(self, commits: Sequence[OffsetCommit]) -> None:
        """Give patterns that are read as topics the ids under which their offsets are stored."""
        for name in {commit.topic for commit in commits if is_pattern_topic(commit.topic)}:
            with suppress(InvalidTopicNameError):
                await self._topics.register_pattern(name)

    def end(self, live: LiveTopic, partition: int) -> Offset | None:
        """Return the end of a partition, or None if it was deleted. May be called from any thread."""
        try:
            return self._bounds(live, live.partition(partition)).end
        except UnknownTopicError:
            return None

    def _bounds(self, live: LiveTopic, partition: PartitionId) -> OffsetBounds:
        if isinstance(live, PatternTopic):
            return OffsetBounds(Offset(0), self._pattern_end(live))
        return self._store.bounds(partition)

    def _checked(self, commit: OffsetCommit, *, any_offset: bool = False) -> "_CommitTarget":
        live = self._topics.readable(commit.topic, commit.topic_uuid)
        partition = live.partition(commit.partition)
        is_pattern = isinstance(live, PatternTopic)
        bounds = OffsetBounds(Offset(0), Offset(self._store.end_cursor())) if is_pattern else self._store.bounds(partition)
        if not any_offset and not 0 <= commit.offset <= bounds.end:
            raise OffsetOutOfRangeError(
                f"offset {commit.offset} can't be committed: partition {commit.partition} of {live.topic.name!r} ends at"
                f" {bounds.end}",
                bounds.start,
                bounds.end,
            )
        size = len(commit.metadata.encode())
        if size > self._limits.offset_metadata_bytes:
            raise OffsetMetadataTooLargeError(
                f"the metadata of the offset has {size} bytes, more than offset_metadata_bytes allows"
                f" ({self._limits.offset_metadata_bytes})"
            )
        return _CommitTarget(live, partition, commit)


class _CommitTarget(NamedTuple):
    live: LiveTopic
    partition: PartitionId
    commit: OffsetCommit


def _lag(end: int, offset: int) -> int:
    return max(0, end - max(0, offset))


def _check_forward(group: str, commit: OffsetCommit, before: int) -> None:
    if commit.offset < before:
        raise OffsetRegressionError(
            f"group {group!r} has committed {before} for partition {commit.partition} of {commit.topic!r} and can't go back to"
            f" {commit.offset} unless the commit is a reset"
        )


def _encode(commit: OffsetCommit, now_ms: int) -> bytes:
    return _VALUE.pack(commit.offset, commit.leader_epoch, now_ms) + commit.metadata.encode()


def _decode(live: LiveTopic, partition: int, value: bytes) -> CommittedOffset:
    offset, leader_epoch, committed_ms = _VALUE.unpack_from(value)
    metadata = value[_VALUE.size :].decode()
    return CommittedOffset(live.topic.name, partition, Offset(offset), leader_epoch, metadata, committed_ms)
