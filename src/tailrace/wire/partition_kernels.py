"""Kafka's choice of partition for a column of keys, compiled by numba: `wire/partitioner.py` for keys by the million."""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int32, int64, uint32, void

from tailrace.wire.compiled import READ_BYTES, compiled

PartitionsOf = Callable[[pa.Array, int], npt.NDArray[np.int32]]


def load_partitions_of() -> PartitionsOf:
    """A function that gives the partition of each key; -1 for a record without one."""

    def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
        column = keys.cast(pa.large_binary())
        rows = len(column)
        found = np.full(rows, -1, np.int32)
        _, ends_buffer, data_buffer = column.buffers()
        if not rows or ends_buffer is None:
            return found
        ends = np.frombuffer(ends_buffer, np.int64)[column.offset : column.offset + rows + 1]
        data = np.frombuffer(data_buffer or b"", np.uint8)
        data.flags.writeable = False
        _choose(data, ends, partitions, found)
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return found

    return partitions_of


@compiled(void(READ_BYTES, int64[::1], int64, int32[::1]))
def _choose(data, ends, partitions, found):
    multiplier = uint32(0x5BD1E995)
    for row in range(len(found)):
        start, stop = ends[row], ends[row + 1]
        length = stop - start
        mixed = uint32(0x9747B28C) ^ uint32(length)
        at = start
        while at + 4 <= stop:
            part = uint32(
                uint32(data[at])
                | (uint32(data[at + 1]) << uint32(8))
                | (uint32(data[at + 2]) << uint32(16))
                | (uint32(data[at + 3]) << uint32(24))
            )
            part = uint32(part * multiplier)
            part = uint32((part ^ (part >> uint32(24))) * multiplier)
            mixed = uint32(uint32(mixed * multiplier) ^ part)
            at += 4
        rest = stop - at
        if rest:
            if rest == 3:
                mixed = uint32(mixed ^ (uint32(data[at + 2]) << uint32(16)))
            if rest >= 2:
                mixed = uint32(mixed ^ (uint32(data[at + 1]) << uint32(8)))
            mixed = uint32((mixed ^ uint32(data[at])) * multiplier)
        mixed = uint32((mixed ^ (mixed >> uint32(13))) * multiplier)
        mixed = uint32(mixed ^ (mixed >> uint32(15)))
        found[row] = int32((int64(mixed) & 0x7FFFFFFF) % partitions)
