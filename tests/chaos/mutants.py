"""Stores with one known fault each, to show that the chaos tests notice.

A mutant patches the real classes of its process. `tests/chaos/test_mutants.py` names the rule that each one
breaks.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count

from tailrace.log import opening, recovery
from tailrace.log.active_segment import ActiveSegment, EncodedFrames
from tailrace.log.catalog import Catalog, CheckpointData, NewBatch
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.frame import BadFrameError, Frame, frame_size, read_effects, read_frame
from tailrace.log.recovery import Recovery, SegmentFile, SyncEvidence
from tailrace.log.state import SettledState, StateDb
from tailrace.model.commit import Buffer, Changes
from tailrace.model.ids import Cursor, Offset, Position
from tailrace.store.contract import OnDone, StoreCommit
from tailrace.store.group_commit import GroupCommit
from tailrace.store.sequencer import PendingCommit, Sequencer


def ack_before_sync() -> None:
    """Syncs of the log do nothing."""
    os.fdatasync = lambda fd: None


def ack_before_write() -> None:
    """Commits are answered when they are submitted."""
    submit = GroupCommit.submit

    def answer_early(self: GroupCommit, changes: Changes, done: OnDone) -> PendingCommit:
        commit = submit(self, changes, _ignore)
        done(commit)
        return commit

    GroupCommit.submit = answer_early  # type: ignore[method-assign]


def state_ahead_of_log() -> None:
    """State is saved before the frame that changes it is written."""
    opened: list[StateDb] = []
    create, write = StateDb.__init__, ActiveSegment.append

    def remember(self: StateDb, *args: object, **options: object) -> None:
        create(self, *args, **options)  # type: ignore[arg-type]
        opened[:] = [self]

    def eager(self: ActiveSegment, runs: Iterable[EncodedFrames]) -> None:
        made = list(runs)
        buffers = [buffer for run in made for buffer in run.buffers]
        settled = SettledState(opened[0])
        frames = _frames(buffers, self.position, self.salt)
        settled.apply([read_effects(bytes(frame.effects), frame.effect_count) for frame in frames], self.synced)
        opened[0].flush()
        write(self, made)

    StateDb.__init__ = remember  # type: ignore[method-assign]
    ActiveSegment.append = eager  # type: ignore[method-assign]


def index_ahead_of_log() -> None:
    """A checkpoint says that more of the log is saved than there is."""
    save = Checkpoints.save

    def boastful(self: Checkpoints, data: CheckpointData) -> None:
        save(self, data._replace(end=data.end._replace(position=Position(data.end.position + 10_000))))

    Checkpoints.save = boastful  # type: ignore[method-assign]


def reused_offset() -> None:
    """Now and then a partition forgets its last batch, and the check that would stop the process is off."""
    admit, show = Sequencer.admit, Catalog.append
    numbers = count(1)

    def forgetful(self: Sequencer, changes: Changes, done: OnDone) -> PendingCommit:
        commit = admit(self, changes, done)
        if changes.appends and next(numbers) % 20 == 0:
            append = changes.appends[-1]
            self._ends[append.partition] = Offset(self._ends[append.partition] - append.records)
        return commit

    def trusting(self: Catalog, batches: Iterable[NewBatch]) -> None:
        for batch in batches:
            partition, base, *_ = batch
            self.partitions[partition].end = base
            show(self, [batch])

    Sequencer.admit = forgetful  # type: ignore[method-assign]
    Catalog.append = trusting  # type: ignore[method-assign]


def reused_cursor() -> None:
    """Now and then two commits get the same cursor."""
    admit = Sequencer.admit
    numbers = count(1)

    def forgetful(self: Sequencer, changes: Changes, done: OnDone) -> PendingCommit:
        commit = admit(self, changes, done)
        if changes.appends and next(numbers) % 20 == 0:
            self._cursor = Cursor(self._cursor - 1)
        return commit

    Sequencer.admit = forgetful  # type: ignore[method-assign]


def torn_commit_accepted() -> None:
    """A frame with a good head is accepted, however much of its records is there."""

    def generous(data: memoryview, at: int, position: int, salt: int, *, check_batches: bool = True) -> Frame:
        try:
            return read_frame(data, at, position, salt, check_batches=check_batches)
        except BadFrameError:
            padded = memoryview(bytes(data[at:]) + bytes(1 << 20))
            return read_frame(padded, 0, position, salt, check_batches=False)

    recovery.read_frame = generous  # type: ignore[attr-defined]


def recovery_cuts_too_much() -> None:
    """A start cuts off a quarter of the log, as if it were torn."""
    create = Recovery.__init__

    def cautious(self: Recovery, files: Sequence[SegmentFile], start: int, evidence: Sequence[SyncEvidence]) -> None:
        os.truncate(files[-1].path, files[-1].path.stat().st_size * 3 // 4)
        create(self, files, start, ())

    Recovery.__init__ = cautious  # type: ignore[method-assign]


def state_not_replayed() -> None:
    """A start reads the records after the last checkpoint, and forgets the state."""

    def without_puts(effects: bytes, count: int) -> Changes:
        return read_effects(effects, count)._replace(puts=[], drop_prefixes=[])

    opening.read_effects = without_puts  # type: ignore[attr-defined]


def corruption_cut_off() -> None:
    """A start cuts off the log at the first bad frame, whatever comes after it."""
    recovery.diagnose_end = lambda *_: None


MUTANTS: Mapping[str, Callable[[], None]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        ack_before_sync,
        ack_before_write,
        state_ahead_of_log,
        index_ahead_of_log,
        reused_offset,
        reused_cursor,
        torn_commit_accepted,
        recovery_cuts_too_much,
        state_not_replayed,
        corruption_cut_off,
    )
}


def _frames(buffers: Sequence[Buffer], position: int, salt: int) -> Iterator[Frame]:
    data = memoryview(b"".join(buffers))
    at = 0
    while at < len(data):
        yield read_frame(data, at, position + at, salt)
        at += frame_size(data, at)


def _ignore(commit: StoreCommit) -> None:
    pass
