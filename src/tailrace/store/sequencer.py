"""Gives each commit its place in the log before it is durable.

The sequencer holds the latest view of a store: where every partition ends and what the state keys are if all commits in
flight succeed. It checks a commit against that view, so a refused commit changes nothing, and it forgets the view when a
commit fails. It does no I/O. Callers hold the store's lock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tailrace.model.clock import Hlc, HybridClock
from tailrace.model.commit import ASSIGN, Append, Changes, CommitReceipt
from tailrace.model.errors import (
    InvalidPartitionsError,
    LimitExceededError,
    OffsetOutOfRangeError,
    SequencingError,
    TailraceError,
    UnknownPartitionError,
)
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import Limits

Done = Callable[["PendingCommit"], None]

_COMMIT_OVERHEAD_BYTES = 128


class PendingCommit(msgspec.Struct, eq=False):
    """A commit between `submit` and `done`."""

    changes: Changes
    only: Append | None
    """The batch, where the commit is one batch and nothing else."""
    hlc: Hlc
    cursor: Cursor
    offsets: Sequence[Offset]
    sequence: int
    size: int
    done: Done
    submitted_at: float = 0.0
    error: TailraceError | None = None

    @property
    def receipt(self) -> CommitReceipt:
        return CommitReceipt(self.hlc, self.cursor, self.offsets)


class Sequencer:
    """The latest view: settled state plus all commits in flight."""

    def __init__(self, clock: HybridClock, limits: Limits, ends: Mapping[PartitionId, Offset], cursor: Cursor) -> None:
        self._clock = clock
        self._frame_bytes = limits.frame_bytes
        self._ends: dict[PartitionId, Offset] = {}
        self._counts: dict[TopicId, int] = {}
        self._cursor = cursor
        self._sequence = 0
        """Rises with every commit that changes state: the latest of two values of a key is the one with the higher number."""
        self._state: dict[bytes, tuple[int, bytes | None]] = {}
        self._dropped_prefixes: list[tuple[int, bytes]] = []
        self.reset(ends, cursor)

    def reset(self, ends: Mapping[PartitionId, Offset], cursor: Cursor) -> None:
        """Forget all commits in flight; the settled view is all there is."""
        self._ends = dict(ends)
        self._counts = {}
        for topic_id, _ in self._ends:
            self._counts[topic_id] = self._counts.get(topic_id, 0) + 1
        self._cursor = cursor
        self._state.clear()
        self._dropped_prefixes.clear()

    def admit(self, changes: Changes, done: Done) -> PendingCommit:
        """Check the changes against the latest view and, if they hold, add them to it."""
        creates, drops, trims, appends, drop_prefixes, puts = changes
        if len(appends) == 1 and not (puts or creates or drops or trims or drop_prefixes):
            return self._admit_one(changes, appends[0], done)
        if creates or drops or trims:
            self._check_partitions(changes)
        size = _COMMIT_OVERHEAD_BYTES
        for key, value in puts:
            size += len(key) + (len(value) if value is not None else 0)
        records = 0
        for _, batch, count, _, _ in appends:
            size += len(batch)
            records += count
        if size > self._frame_bytes:
            raise self._too_large(size)
        offsets, ends = self._place(changes)
        # Nothing below refuses: from here on the commit is part of the latest view.
        if creates or drops:
            self._change_partitions(changes)
        self._ends.update(ends)
        self._sequence = sequence = self._sequence + 1
        for prefix in drop_prefixes:
            self._dropped_prefixes.append((sequence, prefix))
        for key, value in puts:
            self._state[key] = (sequence, value)
        cursor = self._cursor
        self._cursor = Cursor(cursor + records)
        return PendingCommit(changes, None, self._clock.next(), cursor, offsets, sequence, size, done)

    def settle(self, commits: Iterable[PendingCommit]) -> None:
        """These commits are in the settled view now; the latest view need not remember them."""
        state = self._state
        if not state and not self._dropped_prefixes:
            return
        last = 0
        for commit in commits:
            last = commit.sequence
            for key, _ in commit.changes.puts:
                held = state.get(key)
                if held is not None and held[0] == last:
                    del state[key]
        if self._dropped_prefixes:
            self._dropped_prefixes = [(at, prefix) for at, prefix in self._dropped_prefixes if at > last]

    def next_offset(self, partition: PartitionId) -> Offset:
        end = self._ends.get(partition)
        if end is None:
            raise UnknownPartitionError.of(partition)
        return end

    def latest(self, key: bytes) -> tuple[bool, bytes | None]:
        """Whether a commit in flight decides the key, and if so its value."""
        sequence, value = self._state.get(key, (0, None))
        for at, prefix in self._dropped_prefixes:
            if at > sequence and key.startswith(prefix):
                sequence, value = at, None
        return sequence > 0, value

    def _admit_one(self, changes: Changes, only: Append, done: Done) -> PendingCommit:
        """The commonest commit by far, on a short way: one batch and nothing else."""
        partition, batch, records, _, wanted = only
        end = self._ends.get(partition)
        if end is None:
            raise UnknownPartitionError.of(partition)
        if wanted != ASSIGN and wanted != end:
            raise _out_of_sequence(partition, end, wanted)
        size = _COMMIT_OVERHEAD_BYTES + len(batch)
        if size > self._frame_bytes:
            raise self._too_large(size)
        # `Offset` and `Cursor` are calls, and this is the busiest place of all.
        self._ends[partition] = end + records  # type: ignore[assignment]
        cursor = self._cursor
        self._cursor = cursor + records  # type: ignore[assignment]
        return PendingCommit(changes, only, self._clock.next(), cursor, (end,), self._sequence, size, done)

    def _too_large(self, size: int) -> LimitExceededError:
        return LimitExceededError(f"the commit has {size} bytes, more than frame_bytes allows ({self._frame_bytes}); split it")

    def _place(self, changes: Changes) -> tuple[list[Offset], dict[PartitionId, Offset]]:
        """The base offset of each append, and where the partitions end after all of them."""
        offsets: list[Offset] = []
        ends: dict[PartitionId, Offset] = {}
        for partition, _, records, _, wanted in changes.appends:
            end = ends.get(partition)
            if end is None:
                end = self._ends.get(partition)
                if end is None and partition.number < dict(changes.creates).get(partition.topic_id, 0):
                    end = Offset(0)
                if end is None or partition.topic_id in changes.drops:
                    raise UnknownPartitionError.of(partition)
            if wanted != ASSIGN and wanted != end:
                raise _out_of_sequence(partition, end, wanted)
            offsets.append(end)
            ends[partition] = Offset(end + records)
        return offsets, ends

    def _check_partitions(self, changes: Changes) -> None:
        counts: dict[TopicId, int] = {}
        for topic_id, count in changes.creates:
            have = counts.get(topic_id, self._counts.get(topic_id, 0))
            if count < max(have, 1):
                raise InvalidPartitionsError(f"topic {topic_id} has {have} partitions and can't have {count}")
            counts[topic_id] = count
        for topic_id in changes.drops:
            if topic_id not in self._counts or topic_id in counts or changes.drops.count(topic_id) > 1:
                raise UnknownPartitionError.of(PartitionId(topic_id, 0))
        for partition, start in changes.trims:
            end = self.next_offset(partition)
            if partition.topic_id in changes.drops:
                raise UnknownPartitionError.of(partition)
            if not 0 <= start <= end:
                raise OffsetOutOfRangeError(f"partition {partition.number} ends at {end} and can't start at {start}", 0, end)

    def _change_partitions(self, changes: Changes) -> None:
        for topic_id, count in changes.creates:
            for index in range(self._counts.get(topic_id, 0), count):
                self._ends[PartitionId(topic_id, index)] = Offset(0)
            self._counts[topic_id] = count
        for topic_id in changes.drops:
            for index in range(self._counts.pop(topic_id)):
                del self._ends[PartitionId(topic_id, index)]


def _out_of_sequence(partition: PartitionId, end: int, wanted: int) -> SequencingError:
    return SequencingError(f"partition {partition.number}: the next offset is {end}, the commit was built for {wanted}")
