"""Steps: changes on their way through Spark, from a source to the router's tasks.

A source emits its changes in order, in **steps**. The records made from a step and the move of the source's mark take effect
together. For Spark a step is one row for each change, with what the conditions of routes use, and one last row that carries
the step itself, which Spark does not look into:

    table        the id of the table
    op           insert, update, delete, or read for a row that existed before its route; an index of `OPERATIONS`
    cursor       its position in the whole log: routes are in force from a cursor on
    only_route   the one route that the change is for, or null
    skip_routes  routes that the change is not for, as `,3,7,`, or null
    step         null for a change; in the last row of a step its changes, as Arrow, and the move of the mark
    cell_0 ...   the cells that routes name, in the slots of `CellSlots`

So payloads cost Spark almost nothing: they are one large value for thousands of changes.

`StepRows` writes these rows. When the plan has evaluated the routes, `StepMerger` reads them, and merges consecutive steps: a
source cuts its steps as if every route matched every change, because it can't know more, and each step costs each topic
something.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import invariant
from tailrace.model.limits import MIB
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.plan import CellSlots, slot_name

CHANGES = pa.schema(
    {
        "op": pa.int32(),
        "key": pa.binary(),
        "old": pa.binary(),
        "new": pa.binary(),
        "cursor": pa.int64(),
        "committed_ms": pa.int64(),
        "offset": pa.int64(),
    }
)
"""The changes of a step. Rows and keys are JSON as in the log, or null. `offset` is the position in the source: a mark with
this value is before the change."""

STEP_BYTES = 4 * MIB
STEP_ROWS = 20_000
STEP_BATCHES = 2_000
"""Bounds of what all routes together make of one step, which takes effect as a whole. The server needs some 20 µs for a batch
and does nothing else meanwhile."""

_ROW_DDL = "table INT, op INT, cursor BIGINT, only_route INT, skip_routes STRING, step BINARY"
_SOURCE, _BEFORE, _AFTER = b"source", b"before", b"after"


class ChangeStep(NamedTuple):
    """Consecutive changes of one table, and the range of the source that they come from."""

    move: MarkMove
    changes: pa.RecordBatch
    """Of the schema `CHANGES`."""


def change_schema(slots: CellSlots) -> str:
    """Return the schema of the rows of steps, for Spark."""
    return ", ".join([_ROW_DDL, *(f"{slot_name(slot)} {kind}" for slot, kind in enumerate(slots.spark_types))])


def read_step(written: pa.Buffer) -> ChangeStep:
    """Decode the step that the last row of a step carries."""
    with pa.ipc.open_stream(written) as stream:
        metadata = stream.schema.metadata
        move = MarkMove(metadata[_SOURCE].decode(), int(metadata[_BEFORE]), int(metadata[_AFTER]))
        return ChangeStep(move, stream.read_next_batch())


def write_step(step: ChangeStep) -> pa.Buffer:
    source, before, after = step.move
    schema = CHANGES.with_metadata({_SOURCE: source.encode(), _BEFORE: b"%d" % (before or 0), _AFTER: b"%d" % after})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_batch(step.changes)
    return out.getvalue()


_ROW_FIELDS = [
    ("table", pa.int32()),
    ("op", pa.int32()),
    ("cursor", pa.int64()),
    ("only_route", pa.int32()),
    ("skip_routes", pa.string()),
    ("step", pa.binary()),
]


class StepRows:
    """Builds the rows of steps. For tasks only: loading the compiled loops takes a second."""

    def __init__(self, slots: CellSlots) -> None:
        from tailrace.pipeline.cell_columns import TypedCells

        self._cells = TypedCells(slots)
        self._schema = pa.schema(_ROW_FIELDS + [(slot_name(slot), kind) for slot, kind in enumerate(self._cells.types)])

    def of(self, step: ChangeStep, table: int, only_route: pa.Array, skip_routes: pa.Array) -> pa.RecordBatch:
        """Return one row for each change, and the last row, which has only the step."""
        changes = step.changes
        columns = [
            pa.array(np.full(changes.num_rows, table, np.int32)),
            changes.column("op"),
            changes.column("cursor"),
            only_route,
            skip_routes,
        ]
        images = {"old": changes.column("old"), "new": changes.column("new")}
        cells = self._cells.of(table, images, changes.column("cursor").to_numpy())
        steps = _after_nulls(write_step(step), changes.num_rows)
        return pa.RecordBatch.from_arrays([*map(_with_null, columns), steps, *map(_with_null, cells)], schema=self._schema)


def _with_null(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(1, column.type)])


def _after_nulls(value: pa.Buffer, nulls: int) -> pa.Array:
    """Return an array of nulls and then this value, which is large and is not copied."""
    ends = np.zeros(nulls + 2, np.int32)
    ends[-1] = value.size
    valid = np.packbits(np.arange(nulls + 1) == nulls, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), nulls + 1, [pa.py_buffer(valid), pa.py_buffer(ends), value])


class EvaluatedStep(NamedTuple):
    """A step, and what the plan found out about its changes."""

    move: MarkMove
    changes: pa.RecordBatch
    """Of the schema `CHANGES`."""
    results: pa.RecordBatch
    """For each change the bits and keys of its routes, as `RouteBits` has them."""

    def split(self, pieces: int) -> "Iterator[EvaluatedStep]":
        """Split it into consecutive steps of about equal numbers of changes."""
        rows = self.changes.num_rows
        cuts = [rows * number // pieces for number in range(1, pieces)]
        source, before, after = self.move
        offsets = [before, *self.changes.column("offset").take(pa.array(cuts, pa.int64())).to_pylist(), after]
        for number, (first, stop) in enumerate(pairwise([0, *cuts, rows])):
            yield EvaluatedStep(
                MarkMove(source, offsets[number], offsets[number + 1]),
                self.changes.slice(first, stop - first),
                self.results.slice(first, stop - first),
            )


class StepMerger:
    """Merges consecutive steps while their records stay within the bounds."""

    def __init__(self, words: Sequence[str], max_bytes: int, max_rows: int) -> None:
        """`words` are the columns with the bits of routes."""
        self._words = words
        self._max_bytes = max_bytes
        self._max_rows = max_rows

    def merged(self, steps: Iterator[EvaluatedStep]) -> Iterator[EvaluatedStep]:
        """Yield as few steps as possible. A step that is too large by itself stays as it is."""
        waiting: list[EvaluatedStep] = []
        rows_waiting = bytes_waiting = 0
        for step in steps:
            # A change that matches no route is held in memory as long as any other.
            routes = np.maximum(self._route_counts(step), 1)
            more_rows, more_bytes = int(routes.sum()), int(routes @ _sizes(step.changes))
            fits = rows_waiting + more_rows <= self._max_rows and bytes_waiting + more_bytes <= self._max_bytes
            if waiting and not (fits and _follows(waiting[-1].move, step.move)):
                yield _merged(waiting)
                waiting, rows_waiting, bytes_waiting = [], 0, 0
            waiting.append(step)
            rows_waiting += more_rows
            bytes_waiting += more_bytes
        if waiting:
            yield _merged(waiting)

    def _route_counts(self, step: EvaluatedStep) -> npt.NDArray[np.int64]:
        """Count the routes that match or fail for each change."""
        routes = np.zeros(step.results.num_rows, np.int64)
        for word in self._words:
            routes += np.bitwise_count(step.results.column(word).to_numpy())
        return routes


def evaluated_steps(rows: Iterator[pa.RecordBatch]) -> Iterator[EvaluatedStep]:
    """Yield each step that these rows carry, with the rows of its changes."""
    waiting: list[pa.RecordBatch] = []
    for batch in rows:
        begin = 0
        steps = batch.column("step")
        for place in np.flatnonzero(steps.is_valid().to_numpy(zero_copy_only=False)).tolist():
            waiting.append(batch.slice(begin, place - begin))
            move, changes = read_step(steps[place].as_buffer())
            results = pa.concat_batches(waiting)
            invariant(
                changes.num_rows == results.num_rows,
                f"a step of {changes.num_rows} changes has the results of {results.num_rows}: {move}",
            )
            yield EvaluatedStep(move, changes, results)
            waiting, begin = [], place + 1
        waiting.append(batch.slice(begin))


def _sizes(changes: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of each change."""
    sizes = np.zeros(changes.num_rows, np.int64)
    for name in ("key", "old", "new"):
        sizes += pc.binary_length(changes.column(name)).fill_null(0).to_numpy(zero_copy_only=False)
    return sizes


def _follows(move: MarkMove, following: MarkMove) -> bool:
    return move.source == following.source and move.after == following.before


def _merged(steps: Sequence[EvaluatedStep]) -> EvaluatedStep:
    if len(steps) == 1:
        return steps[0]
    first, last = steps[0].move, steps[-1].move
    return EvaluatedStep(
        MarkMove(first.source, first.before, last.after),
        pa.concat_batches([step.changes for step in steps]),
        pa.concat_batches([step.results for step in steps]),
    )
