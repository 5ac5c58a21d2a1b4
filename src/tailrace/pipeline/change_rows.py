"""Changes on their way through Spark: what the router takes from any source of changes.

A source hands out its changes in order, in **steps**. Whatever was made of the changes of a step takes effect together with
the move of the source's mark. For Spark a step is a row for each change, with what the conditions of routes look at, and one
row behind them that carries the step itself, whole and unseen:

    table        the id of the table
    op           insert, update, delete, or read for a row that was there before its route; its place in `OPERATIONS`
    cursor       its place in the whole log: routes are in force from a cursor on
    only_route   the one route that the change is for, or null
    skip_routes  routes that the change is not for, as `,3,7,`, or null
    step         null in a change; in the last row of a step its changes, as Arrow, and the move of the mark
    cell_0 ...   the cells that routes name, as `cells.py` has them

So payloads cost Spark next to nothing: they are one large value for thousands of changes.
"""

from typing import NamedTuple

import pyarrow as pa

from tailrace.model.limits import MIB
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.cells import CellSlots, slot_name

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
"""The changes of a step: rows and keys are JSON as it stands in the log, null where there is none. The offset is that in the
source: a mark that stands there is before the change."""

STEP_BYTES = 4 * MIB
STEP_ROWS = 20_000
STEP_BATCHES = 2_000
"""Of what all routes together make of one step, which takes effect whole. The server needs some 20 µs for a batch, and does
nothing else meanwhile."""

_SEEN = "table INT, op INT, cursor BIGINT, only_route INT, skip_routes STRING, step BINARY"
_SOURCE, _BEFORE, _AFTER = b"source", b"before", b"after"


class Step(NamedTuple):
    """Some changes of one table, and the part of its source that they are all changes of."""

    move: MarkMove
    changes: pa.RecordBatch
    """As `CHANGES` has them."""


def change_schema(slots: CellSlots) -> str:
    """For Spark."""
    return ", ".join([_SEEN, *(f"{slot_name(slot)} {kind}" for slot, kind in enumerate(slots.spark_types))])


def read_step(written: pa.Buffer) -> Step:
    """The step that such a row carries."""
    with pa.ipc.open_stream(written) as stream:
        told = stream.schema.metadata
        move = MarkMove(told[_SOURCE].decode(), int(told[_BEFORE]), int(told[_AFTER]))
        return Step(move, stream.read_next_batch())


def write_step(step: Step) -> pa.Buffer:
    source, before, after = step.move
    schema = CHANGES.with_metadata({_SOURCE: source.encode(), _BEFORE: b"%d" % (before or 0), _AFTER: b"%d" % after})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_batch(step.changes)
    return out.getvalue()
