"""Commits that have their place, made into frames.

A group is encoded in pieces, each made when it is asked for, so that the disk can take one while the next is made. What
readers have to be shown afterwards is collected on the way.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from tailrace.log.catalog import NewBatch
from tailrace.log.frame import ONE_BATCH_HEAD_BYTES, encode_effects, encode_entry, encode_head, fast_encode_head, head_size
from tailrace.model.clock import Hlc
from tailrace.model.commit import Append, Buffer, Changes
from tailrace.model.ids import Cursor, Offset
from tailrace.wire.batch import placed


class Committed(Protocol):
    """A commit that has its place in the log."""

    @property
    def changes(self) -> Changes: ...
    @property
    def only(self) -> Append | None:
        """The batch, where the commit is one batch and nothing else."""

    @property
    def hlc(self) -> Hlc: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def offsets(self) -> Sequence[Offset]: ...
    @property
    def size(self) -> int:
        """Its bytes, about."""


class Piece(NamedTuple):
    """Whole frames that are written with one call."""

    buffers: Sequence[Buffer]
    size: int
    is_last: bool


class GroupFrames:
    """The frames of a group, from `position` on. What it says of the group holds when all pieces have been taken."""

    def __init__(self, group: Sequence[Committed], position: int, synced: int, salt: int, piece_bytes: int) -> None:
        self._group = group
        self._synced = synced
        self._salt = salt
        self._piece_bytes = piece_bytes
        self.position = position
        """Where the next frame begins."""
        self.cursor = 0
        self.batches: list[NewBatch] = []
        self.has_state = False
        self.is_structural = False

    def pieces(self) -> Iterator[Piece]:
        synced, salt = self._synced, self._salt
        batches = self.batches
        begun = position = self.position
        full = begun + self._piece_bytes
        buffers: list[Buffer] = []
        cursor: int = 0
        for commit in self._group:
            if position >= full:
                yield Piece(buffers, position - begun, False)
                buffers = []
                begun = position
                full = begun + self._piece_bytes
            only = commit.only
            if only is None:
                self.position = position
                buffers += self._frame(commit)
                position, cursor = self.position, self.cursor
                continue
            cursor = commit.cursor
            partition, batch, records, timestamp, _ = only
            (base,) = commit.offsets
            batch = placed(batch, base)
            length = len(batch)
            buffers.append(
                fast_encode_head(position, synced, cursor, commit.hlc, partition, base, records, batch, timestamp, salt)
            )
            buffers.append(batch)
            at = position + ONE_BATCH_HEAD_BYTES
            batches.append((partition, base, records, length, at, timestamp, cursor, batch))
            position = at + length
            cursor += records
        self.position, self.cursor = position, cursor
        yield Piece(buffers, position - begun, True)

    def _frame(self, commit: Committed) -> list[Buffer]:
        """A commit of any kind, at `position`."""
        appends = commit.changes.appends
        effects, effect_count = encode_effects(commit.changes)
        self.has_state |= effect_count > 0
        self.is_structural |= commit.changes.is_structural
        cursor: int = commit.cursor
        start = at = self.position + head_size(len(appends), len(effects))
        entries = []
        bodies: list[Buffer] = []
        for (partition, batch, records, timestamp, _), base in zip(appends, commit.offsets, strict=True):
            batch = placed(batch, base)
            length = len(batch)
            entries.append(encode_entry(partition, base, cursor, records, batch, timestamp))
            bodies.append(batch)
            self.batches.append((partition, base, records, length, at, timestamp, cursor, batch))
            at += length
            cursor += records
        head = encode_head(
            self.position, self._synced, commit.cursor, commit.hlc, entries, effects, effect_count, at - start, self._salt
        )
        self.position, self.cursor = at, cursor
        return [head, *bodies]
