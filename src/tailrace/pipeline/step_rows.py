"""The rows of a step, as Spark gets them from any source of changes. For tasks: what is compiled takes a while to load."""

import numpy as np
import pyarrow as pa

from tailrace.pipeline.cells import CellSlots, slot_name
from tailrace.pipeline.change_rows import Step, write_step
from tailrace.pipeline.typed_cells import TypedCells

_SEEN = [
    ("table", pa.int32()),
    ("op", pa.int32()),
    ("cursor", pa.int64()),
    ("only_route", pa.int32()),
    ("skip_routes", pa.string()),
    ("step", pa.binary()),
]


class StepRows:
    def __init__(self, slots: CellSlots) -> None:
        self._cells = TypedCells(slots)
        self._schema = pa.schema(_SEEN + [(slot_name(slot), kind) for slot, kind in enumerate(self._cells.types)])

    def of(self, step: Step, table: int, only_route: pa.Array, skip_routes: pa.Array) -> pa.RecordBatch:
        """A row for each change, and the one behind them, which has only the step."""
        changes = step.changes
        rows = [
            pa.array(np.full(changes.num_rows, table, np.int32)),
            changes.column("op"),
            changes.column("cursor"),
            only_route,
            skip_routes,
            pa.nulls(changes.num_rows, pa.binary()),
            *self._cells.of(table, {"old": changes.column("old"), "new": changes.column("new")}),
        ]
        last = [pa.nulls(1, field.type) for field in self._schema]
        last[self._schema.get_field_index("step")] = _one(write_step(step))
        return pa.RecordBatch.from_arrays(
            [pa.concat_arrays(pair) for pair in zip(rows, last, strict=True)], schema=self._schema
        )


def _one(value: pa.Buffer) -> pa.Array:
    """An array of this value."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, value.size], np.int32)), value])
