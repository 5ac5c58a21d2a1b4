"""How far consumer groups have come: one offset per group, topic and partition, committed in frames.

An offset never moves back by itself; a reset says so on purpose. Groups are counted, because naming one is enough to make it.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from tailrace.broker import keys
from tailrace.broker.commit import Change, Committer
from tailrace.broker.draft import Draft
from tailrace.broker.live_topic import LiveTopic
from tailrace.broker.topics import Topics
from tailrace.model.changes import Changes, Receipt
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    LimitExceededError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    UnknownGroupError,
    UnknownTopicError,
)
from tailrace.model.ids import Offset, Partition
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.model.offset import CommittedOffset, Lag, OffsetCommit
from tailrace.store.contract import Store

_VALUE = Struct(">qiQ")
_SCAN_KEYS = 1_000


class Offsets:
    def __init__(self, store: Store, committer: Committer, topics: Topics, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._groups: set[str] = set()
        self._new_groups: set[str] = set()
        """Groups that commits in flight are about to make."""

    def load(self) -> None:
        self._groups = {keys.group_of(key) for key, _ in self._store.range(keys.GROUPS)}

    @property
    def groups(self) -> Sequence[str]:
        return sorted(self._groups)

    async def commit(self, group: str, commits: Sequence[OffsetCommit], *, reset: bool = False) -> None:
        """Commit them all, or none if one is refused. Without `reset` none may be lower than before."""
        check_group_name(group, self._limits)
        targets = [self._checked(commit) for commit in commits]
        if not targets:
            return
        made_here = False

        def decide() -> Changes:
            nonlocal made_here
            draft = Draft(self._store)
            if self._store.latest(keys.group_key(group)) is None:
                if group not in self._new_groups:
                    self._check_room(group)
                    self._new_groups.add(group)
                    made_here = True
                draft.put(keys.group_key(group), b"")
            for live, partition, commit in targets:
                if self._topics.by_id(partition.topic_id) is not live:
                    raise UnknownTopicError(f"topic {commit.topic!r} has been deleted")
                key = keys.offset_key(partition, group)
                before = draft.latest(key)
                if before is not None and not reset:
                    _check_forward(group, commit, _VALUE.unpack_from(before)[0])
                draft.put(key, self._encode(commit))
            return draft.changes()

        def settled(_: Receipt | None) -> None:
            self._groups.add(group)
            self._new_groups.discard(group)

        def failed() -> None:
            if made_here:
                self._new_groups.discard(group)

        await self._committer.submit(Change(decide, settled, failed))

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """What the group has committed; `None` if nothing yet."""
        live = self._topics.get(topic)
        value = self._store.get(keys.offset_key(live.partition(partition), group))
        return None if value is None else _decode(live, partition, value)

    def committed_by(self, group: str) -> list[CommittedOffset]:
        """All offsets of a group, by topic and partition."""
        found = []
        for live in self._topics:
            prefix = keys.offsets_of_group(live.topic.id, group)
            for key, value in self._store.range(prefix):
                found.append(_decode(live, keys.read_offset_key(key)[0].number, value))
        return found

    def lag(self, group: str) -> list[Lag]:
        """How far the group is behind the end, by topic and partition."""
        found = []
        for committed in self.committed_by(group):
            live = self._topics.get(committed.topic)
            end = self._store.bounds(live.partition(committed.partition)).end
            found.append(Lag(committed.topic, committed.partition, committed.offset, end, max(0, end - committed.offset)))
        return found

    def total_lags(self) -> dict[tuple[str, str], int]:
        """The lag of each group in each topic, for the metrics page. May be called from any thread."""
        totals: dict[tuple[str, str], int] = {}
        for key, value in self._scan(keys.OFFSETS):
            partition, group = keys.read_offset_key(key)
            live = self._topics.by_id(partition.topic_id)
            if live is None:
                continue
            try:
                end = self._store.bounds(partition).end
            except UnknownTopicError:
                continue
            name = group, live.topic.name
            totals[name] = totals.get(name, 0) + max(0, end - _VALUE.unpack_from(value)[0])
        return totals

    async def delete_group(self, group: str) -> None:
        """Forget the group and all its offsets."""
        if group not in self._groups:
            raise UnknownGroupError(f"there is no group {group!r}")

        def decide() -> Changes:
            return Changes(
                drop_prefixes=tuple(keys.offsets_of_group(live.topic.id, group) for live in self._topics),
                puts=((keys.group_key(group), None),),
            )

        await self._committer.submit(Change(decide, lambda _: self._groups.discard(group)))

    async def delete_offsets(self, group: str, topic: str) -> None:
        """Forget the group's offsets in one topic."""
        prefix = keys.offsets_of_group(self._topics.get(topic).topic.id, group)
        await self._committer.submit(Change(lambda: Changes(drop_prefixes=(prefix,)), lambda _: None))

    def check(self, commit: OffsetCommit) -> Partition:
        """Where the commit goes. Raises if it can't be made."""
        return self._checked(commit)[1]

    def make_group(self, draft: Draft, group: str) -> bool:
        """Make the group if it is not there. True when room was taken for it, until it is made or given up."""
        key = keys.group_key(group)
        if draft.latest(key) is not None:
            return False
        draft.put(key, b"")
        if group in self._new_groups:
            return False
        self._check_room(group)
        self._new_groups.add(group)
        return True

    def group_made(self, group: str) -> None:
        self._groups.add(group)
        self._new_groups.discard(group)

    def group_given_up(self, group: str) -> None:
        self._new_groups.discard(group)

    def write(self, draft: Draft, group: str, partition: Partition, commit: OffsetCommit) -> None:
        """Put the offset into a draft, whatever it was before."""
        draft.put(keys.offset_key(partition, group), self._encode(commit))

    def _checked(self, commit: OffsetCommit) -> tuple[LiveTopic, Partition, OffsetCommit]:
        live = self._topics.get(commit.topic)
        partition = live.partition(commit.partition)
        bounds = self._store.bounds(partition)
        if not 0 <= commit.offset <= bounds.end:
            raise OffsetOutOfRangeError(
                f"offset {commit.offset} can't be committed: partition {commit.partition} of {live.topic.name!r} ends at"
                f" {bounds.end}",
                bounds.start,
                bounds.end,
            )
        size = len(commit.metadata.encode())
        if size > self._limits.offset_metadata_bytes:
            raise LimitExceededError(
                f"the metadata of the offset has {size} bytes, more than offset_metadata_bytes allows"
                f" ({self._limits.offset_metadata_bytes})"
            )
        return live, partition, commit

    def _check_room(self, group: str) -> None:
        there = len(self._groups | self._new_groups)
        if there >= self._limits.groups:
            raise LimitExceededError(f"there are {there} groups, as many as groups allows; delete one before {group!r} is made")

    def _encode(self, commit: OffsetCommit) -> bytes:
        return _VALUE.pack(commit.offset, commit.leader_epoch, self._clock.now_ms()) + commit.metadata.encode()

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        start = b""
        while True:
            found = self._store.range(prefix, start, _SCAN_KEYS)
            yield from found
            if len(found) < _SCAN_KEYS:
                return
            start = found[-1][0][len(prefix) :] + b"\0"


def _check_forward(group: str, commit: OffsetCommit, before: int) -> None:
    if commit.offset < before:
        raise OffsetRegressionError(
            f"group {group!r} has committed {before} for partition {commit.partition} of {commit.topic!r} and can't go back to"
            f" {commit.offset} unless the commit is a reset"
        )


def _decode(live: LiveTopic, partition: int, value: bytes) -> CommittedOffset:
    offset, leader_epoch, committed_ms = _VALUE.unpack_from(value)
    metadata = value[_VALUE.size :].decode()
    return CommittedOffset(live.topic.name, partition, Offset(offset), leader_epoch, metadata, committed_ms)
