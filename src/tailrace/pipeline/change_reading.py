"""One task's reading of table changes: stored batches become change rows, cut into steps, each with its mark at the end."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.pipeline.change_rows import CHANGE_ARROW, mark_row
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import DataLossError, RefusedError
from tailrace.wire.arrow import decode_batches
from tailrace.wire.batch_stream import decode_batches as decode_stream
from tailrace.wire.change_kernels import load_row_images
from tailrace.wire.compiled_fields import compiled_fields

_FETCH_BYTES = 8 * MIB
_STEP_BYTES = 4 * MIB
_STEP_ROWS = 20_000
"""Of what all routes together make of one step, which takes effect whole."""
_STORED = ("offset", "cursor", "timestamp", "key_bytes", "value_bytes", "op", "only_route", "skip_routes")


class ChangeRange(NamedTuple):
    """What one task reads."""

    source: str
    table: int
    changes: str
    routes: int
    start: int
    end: int


def change_rows(connection: ServerConnection, wanted: ChangeRange) -> Iterator[pa.RecordBatch]:
    """The changes of the range in order, cut into steps, each with its mark at the end."""
    read_fields = compiled_fields()
    images = load_row_images()
    at = marked = wanted.start
    step = _StepSize(wanted.routes)
    while at < wanted.end:
        try:
            answer = connection.batches(wanted.changes, 0, at, _FETCH_BYTES)
        except RefusedError as error:
            raise DataLossError(f"changes {at} to {wanted.end} of {wanted.changes!r} can't be read: {error}") from error
        following = int(answer.headers["tailrace-next-offset"])
        if following <= at:
            raise DataLossError(f"{wanted.changes!r} ends at {at}, before {wanted.end}")
        decoded = decode_batches(
            list(decode_stream(answer.body)), _STORED, partition=0, limits=DEFAULT_LIMITS, read_fields=read_fields
        )
        for batch in decoded:
            first = batch.column("offset")[0].as_py()
            rows = batch.slice(max(0, at - first), max(0, wanted.end - max(at, first)))
            for piece in step.pieces(rows):
                old, new = images(piece.column("value_bytes"))
                yield _change_batch(wanted, piece, old, new)
                if step.is_full:
                    upto = piece.column("offset")[-1].as_py() + 1
                    yield mark_row(wanted.source, marked, upto)
                    marked = upto
                    step.begin()
        at = min(following, wanted.end)
    if marked < wanted.end:
        yield mark_row(wanted.source, marked, wanted.end)


class _StepSize:
    """Counts what is in a step: the more routes a change may take, the fewer changes."""

    def __init__(self, routes: int) -> None:
        self._most_bytes = max(1, _STEP_BYTES // max(1, routes))
        self._most_rows = max(1, _STEP_ROWS // max(1, routes))
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


def _change_batch(wanted: ChangeRange, rows: pa.RecordBatch, old: pa.Array, new: pa.Array) -> pa.RecordBatch:
    count = rows.num_rows
    columns = [
        pa.repeat(wanted.source, count),
        pa.repeat(pa.scalar(wanted.table, pa.int32()), count),
        rows.column("op"),
        rows.column("key_bytes"),
        old,
        new,
        rows.column("offset"),
        rows.column("cursor"),
        rows.column("timestamp").cast(pa.int64()),
        rows.column("only_route").cast(pa.int32()),
        rows.column("skip_routes"),
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGE_ARROW)
