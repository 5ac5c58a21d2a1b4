"""Gives commits their offsets and cursors, and knows the latest view.

The latest view is what the store will hold if all commits in flight succeed. Nothing here does I/O.
Callers hold the store's lock.
"""

from collections.abc import Iterable, Mapping, Sequence

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
from tailrace.model.topic import TopicNames
from tailrace.store.contract import OnDone

_COMMIT_OVERHEAD_BYTES = 128


class PendingCommit(msgspec.Struct, eq=False):
    """A commit between `submit` and `done`."""

    changes: Changes
    only: Append | None
    """The batch, if the commit is one batch and nothing else."""
    hlc: Hlc
    cursor: Cursor
    offsets: Sequence[Offset]
    sequence: int
    size: int
    done: OnDone
    submitted_at: float = 0.0
    error: TailraceError | None = None

    @property
    def receipt(self) -> CommitReceipt:
        return CommitReceipt(self.hlc, self.cursor, self.offsets)


class Sequencer:
    """The latest view: the settled view plus all commits in flight."""

    def __init__(
        self,
        clock: HybridClock,
        limits: Limits,
        ends: Mapping[PartitionId, Offset],
        cursor: Cursor,
        topic_names: TopicNames | None = None,
    ) -> None:
        self._clock = clock
        self._frame_bytes = limits.frame_bytes
        self._topic_names = topic_names or TopicNames()
        self._ends: dict[PartitionId, Offset] = {}
        self._counts: dict[TopicId, int] = {}
        self._cursor = cursor
        self._sequence = 0
        """Rises with every commit that changes state. Of two values of a key, the one with the higher number is the latest."""
        self._state: dict[bytes, tuple[int, bytes | None]] = {}
        self._dropped_prefixes: list[tuple[int, bytes]] = []
        self.reset(ends, cursor)

    def reset(self, ends: Mapping[PartitionId, Offset], cursor: Cursor) -> None:
        """Forget all commits in flight and fall back to the settled view, which ends here."""
        self._ends = dict(ends)
        self._counts = {}
        for topic_id, _ in self._ends:
            self._counts[topic_id] = self._counts.get(topic_id, 0) + 1
        self._cursor = cursor
        self._state.clear()
        self._dropped_prefixes.clear()

    def admit(self, changes: Changes, done: OnDone) -> PendingCommit:
        """Check the changes against the latest view and, if they are valid, add them to it."""
        creates, drops, trims, appends, drop_prefixes, puts = changes
        if len(appends) == 1 and not (puts or creates or drops or trims or drop_prefixes):
            return self._fast_admit(changes, appends[0], done)
        return self._admit(changes, done)

    def settle(self, commits: Iterable[PendingCommit]) -> None:
        """Drop the changes of these commits: they are in the settled view now."""
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
            raise self._unknown(partition)
        return end

    def latest(self, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether a commit in flight sets or deletes the key, and if so its value."""
        sequence, value = self._state.get(key, (0, None))
        for at, prefix in self._dropped_prefixes:
            if at > sequence and key.startswith(prefix):
                sequence, value = at, None
        return sequence > 0, value

    def _admit(self, changes: Changes, done: OnDone) -> PendingCommit:
        """Admit changes of any kind."""
        creates, drops, trims, appends, drop_prefixes, puts = changes
        if creates or drops or trims:
            self._check_partitions(changes)
        size = _COMMIT_OVERHEAD_BYTES
        for key, value in puts:
            size += len(key) + (len(value) if value is not None else 0)
        records = 0
        for _, batch, count, _, _, _ in appends:
            size += len(batch)
            records += count
        if size > self._frame_bytes:
            raise self._too_large(size)
        offsets, ends = self._assign_offsets(changes)
        # Nothing below can fail: from here on the commit is part of the latest view.
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

    def _fast_admit(self, changes: Changes, only: Append, done: OnDone) -> PendingCommit:
        """Fast path of `_admit`: the changes are one batch and nothing else, the commonest commit by far.

        `tests/unit/store/test_sequencer.py` holds both equal.
        """
        partition, batch, records, _, wanted, _ = only
        size = _COMMIT_OVERHEAD_BYTES + len(batch)
        if size > self._frame_bytes:
            raise self._too_large(size)
        end = self._ends.get(partition)
        if end is None:
            raise self._unknown(partition)
        if wanted != ASSIGN and wanted != end:
            raise self._out_of_sequence(partition, end, wanted)
        # `Offset` and `Cursor` would be calls, and nothing in the store runs more often than this.
        self._ends[partition] = end + records  # type: ignore[assignment]
        cursor = self._cursor
        self._cursor = cursor + records  # type: ignore[assignment]
        return PendingCommit(changes, only, self._clock.next(), cursor, (end,), self._sequence, size, done)

    def _assign_offsets(self, changes: Changes) -> tuple[list[Offset], dict[PartitionId, Offset]]:
        """Return the base offset of each append, and where the partitions end after all of them."""
        offsets: list[Offset] = []
        ends: dict[PartitionId, Offset] = {}
        for partition, _, records, _, wanted, _ in changes.appends:
            end = ends.get(partition)
            if end is None:
                end = self._ends.get(partition)
                if end is None and partition.number < dict(changes.creates).get(partition.topic_id, 0):
                    end = Offset(0)
                if end is None or partition.topic_id in changes.drops:
                    raise self._unknown(partition)
            if wanted != ASSIGN and wanted != end:
                raise self._out_of_sequence(partition, end, wanted)
            offsets.append(end)
            ends[partition] = Offset(end + records)
        return offsets, ends

    def _check_partitions(self, changes: Changes) -> None:
        counts: dict[TopicId, int] = {}
        for topic_id, count in changes.creates:
            have = counts.get(topic_id, self._counts.get(topic_id, 0))
            if count < max(have, 1):
                name = self._topic_names.name(topic_id)
                topic = "the new topic" if name is None else repr(name)
                raise InvalidPartitionsError(f"{topic} has {have} partitions and can't have {count}; they can only be added")
            counts[topic_id] = count
        for topic_id in changes.drops:
            if topic_id not in self._counts or topic_id in counts or changes.drops.count(topic_id) > 1:
                raise self._unknown(PartitionId(topic_id, 0))
        for partition, start in changes.trims:
            end = self.next_offset(partition)
            if partition.topic_id in changes.drops:
                raise self._unknown(partition)
            if not 0 <= start <= end:
                raise OffsetOutOfRangeError(
                    f"{self._topic_names.of(partition)} ends at offset {end} and can't start at {start}", 0, end
                )

    def _change_partitions(self, changes: Changes) -> None:
        for topic_id, count in changes.creates:
            for index in range(self._counts.get(topic_id, 0), count):
                self._ends[PartitionId(topic_id, index)] = Offset(0)
            self._counts[topic_id] = count
        for topic_id in changes.drops:
            for index in range(self._counts.pop(topic_id)):
                del self._ends[PartitionId(topic_id, index)]

    def _unknown(self, partition: PartitionId) -> UnknownPartitionError:
        return UnknownPartitionError.of(self._topic_names.of(partition))

    def _too_large(self, size: int) -> LimitExceededError:
        return LimitExceededError(f"the commit has {size} bytes, more than frame_bytes allows ({self._frame_bytes}); split it")

    def _out_of_sequence(self, partition: PartitionId, end: int, wanted: int) -> SequencingError:
        return SequencingError(
            f"{self._topic_names.of(partition)}: the next offset is {end}, the commit was built for {wanted}; build it again"
        )
