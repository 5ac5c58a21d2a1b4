"""Reads a columnar copy of a table in a worker process: the columns that a query needs, without the rows that have changed.

The file is mapped into memory, so nothing of it is copied but what DuckDB makes of it, and it does not count as memory of the
process. Its rows are in the order of the primary key. A batch whose keys are all below or above those that have changed is
handed on as it is.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sql.select.worker_protocol import ColumnarFile, Relation

_COUNTED_ROWS = 100_000


class ColumnarRelation:
    """The rows of a copy that have not changed, followed by those of another relation."""

    def __init__(self, file: ColumnarFile, changed_rows: Relation) -> None:
        self.schema = changed_rows.schema
        self._changed_rows = changed_rows
        self._columns = file.columns
        self._key = file.key
        self._path = file.path
        self._changed = pa.ipc.open_stream(file.changed).read_all() if file.changed else None
        self._bounds = None if self._changed is None else _bounds(self._changed.column(0))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        with pa.memory_map(self._path) as mapped:
            yield from self._unchanged(mapped)
        if self._changed is not None:
            yield from self._changed_rows.batches()

    def _unchanged(self, mapped: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.open_file(mapped).schema
        needed = self._columns if self._changed is None else [*dict.fromkeys((*self._columns, *self._key))]
        # Without columns one is read all the same, for the number of its rows.
        fields = sorted(schema.get_field_index(name) for name in needed or schema.names[:1])
        reader = pa.ipc.open_file(mapped, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            if self._changed is not None and self._may_have_changed(batch):
                batch = self._without_changed(batch)
            if self._columns:
                yield batch.select(self._columns)
            else:
                yield from counted_batches(batch.num_rows)

    def _may_have_changed(self, batch: pa.RecordBatch) -> bool:
        column = batch.column(self._key[0])
        return (
            batch.num_rows > 0
            and self._bounds is not None
            and _plain(column[0]) <= self._bounds[1]
            and _plain(column[-1]) >= self._bounds[0]
        )

    def _without_changed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = self._changed
        if changed is None:
            return batch
        found = None
        for name in self._key:
            values = pc.is_in(_stored(batch.column(name)), value_set=_stored(changed.column(name)))
            found = values if found is None else pc.and_(found, values)
        if len(self._key) > 1:
            found = self._exact(batch, found)
        return batch.filter(pc.invert(found))

    def _exact(self, batch: pa.RecordBatch, possible: pa.BooleanArray) -> pa.BooleanArray:
        """Return which of the possible rows have a changed key; each part of a key has been found, but maybe of others."""
        places = pc.indices_nonzero(possible)
        parts = {name: _stored(batch.column(name)).take(places) for name in self._key}
        rows = pa.table({**parts, " place": places})
        changed = pa.table({name: _stored(self._changed.column(name)) for name in self._key})  # type: ignore[union-attr]
        joined = rows.join(changed, list(self._key), join_type="left semi", use_threads=False)
        return pc.is_in(pa.array(range(batch.num_rows), pa.uint64()), value_set=joined.column(" place").combine_chunks())


def counted_batches(count: int) -> Iterator[pa.RecordBatch]:
    """Yield so many rows without columns, as one column of nulls."""
    schema = pa.schema([("row", pa.null())])
    while count > 0:
        some = min(count, _COUNTED_ROWS)
        yield pa.RecordBatch.from_arrays([pa.nulls(some)], schema=schema)
        count -= some


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    values = [_plain(value) for value in column]
    return min(values), max(values)


def _plain(value: pa.Scalar) -> Any:
    """Return a value that is ordered as SQLite orders it."""
    return value.value.as_py() if isinstance(value, pa.ExtensionScalar) else value.as_py()


def _stored(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return a column without an extension type, which Arrow can't compare."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.storage if isinstance(column, pa.ExtensionArray) else column
