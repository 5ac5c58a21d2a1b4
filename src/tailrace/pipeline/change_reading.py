"""One task's reading of table changes: stored batches become steps, as `change_rows.py` has them."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.cells import OPERATIONS, CellSlots
from tailrace.pipeline.change_rows import CHANGES, STEP_BYTES, STEP_ROWS, Step
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import TOPIC_GONE, DataLossError, RefusedError
from tailrace.pipeline.step_rows import StepRows
from tailrace.wire.arrow import COLUMNS, decode_batches
from tailrace.wire.change_kernels import load_row_images
from tailrace.wire.compiled_fields import compiled_fields

_FETCH_BYTES = 8 * MIB
_STORED = ("offset", "cursor", "timestamp", "key_bytes", "value_bytes", "op", "only_route", "skip_routes")
_NONE = pa.RecordBatch.from_pydict({name: pa.array([], COLUMNS.get(name, pa.string())) for name in _STORED})


class ChangeRange(NamedTuple):
    """What one task reads."""

    source: str
    table: int
    changes: str
    changes_uuid: str
    routes: int
    start: int
    end: int


def change_rows(connection: ServerConnection, wanted: ChangeRange, slots: CellSlots) -> Iterator[pa.RecordBatch]:
    """The changes of the range in order, step by step. A table that is dropped takes with it what is still to be read."""
    with contextlib.suppress(_TableGoneError):
        yield from _change_rows(connection, wanted, slots)


class _TableGoneError(Exception):
    """The table of a range is gone, whoever has its name now."""


def _change_rows(connection: ServerConnection, wanted: ChangeRange, slots: CellSlots) -> Iterator[pa.RecordBatch]:
    steps = _Steps(wanted, slots)
    size = _StepSize(wanted.routes)
    at = wanted.start
    waiting: list[pa.RecordBatch] = []
    for rows in _stored_rows(connection, wanted):
        for piece in size.pieces(rows):
            waiting.append(piece)
            if size.is_full:
                upto = piece.column("offset")[-1].as_py() + 1
                yield steps.rows(at, upto, waiting)
                at = upto
                waiting = []
                size.begin()
    if at < wanted.end:
        yield steps.rows(at, wanted.end, waiting)


def _stored_rows(connection: ServerConnection, wanted: ChangeRange) -> Iterator[pa.RecordBatch]:
    """The records of the range, some thousands at a time."""
    read_fields = compiled_fields()
    at = wanted.start
    while at < wanted.end:
        try:
            fetched = connection.batches(wanted.changes, 0, at, _FETCH_BYTES, topic_uuid=wanted.changes_uuid)
        except RefusedError as error:
            if error.kind in TOPIC_GONE:
                raise _TableGoneError from error
            raise DataLossError(f"changes {at} to {wanted.end} of {wanted.changes!r} can't be read: {error}") from error
        following = fetched.head.next_offset
        if following <= at:
            raise DataLossError(f"{wanted.changes!r} ends at {at}, before {wanted.end}")
        for batch in decode_batches(fetched.batches, _STORED, partition=0, limits=DEFAULT_LIMITS, read_fields=read_fields):
            first = batch.column("offset")[0].as_py()
            yield batch.slice(max(0, at - first), max(0, wanted.end - max(at, first)))
        at = min(following, wanted.end)


class _Steps:
    def __init__(self, wanted: ChangeRange, slots: CellSlots) -> None:
        self._wanted = wanted
        self._rows = StepRows(slots)
        self._images = load_row_images()
        self._operations = pa.array(OPERATIONS)

    def rows(self, before: int, after: int, waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
        """A step with these records; none where all were those of aborted transactions."""
        stored = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting or [_NONE])
        old, new = self._images(stored.column("value_bytes")) if waiting else (pa.nulls(0, pa.binary()),) * 2
        changes = [
            pc.index_in(stored.column("op"), self._operations),
            stored.column("key_bytes"),
            old,
            new,
            stored.column("cursor"),
            stored.column("timestamp").cast(pa.int64()),
            stored.column("offset"),
        ]
        move = MarkMove(self._wanted.source, before, after)
        return self._rows.of(
            Step(move, pa.RecordBatch.from_arrays(changes, schema=CHANGES)),
            self._wanted.table,
            stored.column("only_route").cast(pa.int32()),
            stored.column("skip_routes"),
        )


class _StepSize:
    """Counts what is in a step: the more routes a change may take, the fewer changes. What they do take is seen later."""

    def __init__(self, routes: int) -> None:
        self._most_bytes = max(1, STEP_BYTES // max(1, routes))
        self._most_rows = max(1, STEP_ROWS // max(1, routes))
        self.begin()

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._most_bytes or self._rows >= self._most_rows

    def begin(self) -> None:
        self._bytes = self._rows = 0

    def pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, cut where the step is full; whoever takes a piece begins the next step there."""
        values = rows.column("value_bytes")
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        at = 0
        while at < len(values):
            fitting = int(np.searchsorted(ends, ends[at] + self._most_bytes - self._bytes))
            stop = min(max(at + 1, fitting), at + self._most_rows - self._rows, len(values))
            self._bytes += int(ends[stop] - ends[at])
            self._rows += stop - at
            yield rows.slice(at, stop - at)
            at = stop
