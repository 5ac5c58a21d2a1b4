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
        seen = [
            pa.array(np.full(changes.num_rows, table, np.int32)),
            changes.column("op"),
            changes.column("cursor"),
            only_route,
            skip_routes,
        ]
        cells = self._cells.of(table, {"old": changes.column("old"), "new": changes.column("new")})
        steps = _behind_nulls(write_step(step), changes.num_rows)
        return pa.RecordBatch.from_arrays([*map(_and_null, seen), steps, *map(_and_null, cells)], schema=self._schema)


def _and_null(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(1, column.type)])


def _behind_nulls(value: pa.Buffer, nulls: int) -> pa.Array:
    """So many nulls and this value, which is large and need not be copied."""
    ends = np.zeros(nulls + 2, np.int32)
    ends[-1] = value.size
    valid = np.packbits(np.arange(nulls + 1) == nulls, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), nulls + 1, [pa.py_buffer(valid), pa.py_buffer(ends), value])
