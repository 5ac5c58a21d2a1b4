"""Topics as relations: decoded while they are read, with only the columns that a query names and only the batches it can need.

Records are decoded by plain Python at first, and by compiled loops once there is much to read. Loading the loops takes a second
and tens of megabytes, which small queries do without. Compiling them, the first time on a machine, takes several seconds more
and mostly holds the interpreter's lock, so another process compiles them and leaves the code where this one finds it. Queries
continue with the plain decoder meanwhile, unless they have so much to read that waiting is faster.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.scan import PartitionScan, ScanRange, TopicScan
from tailrace.model.commit import Buffer
from tailrace.model.errors import InvalidRequestError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import NO_TIMESTAMP
from tailrace.sql.select.json_fields import VALUE, JsonFieldReader, JsonKernels, RecordUse
from tailrace.sql.select.sources import ScanBounds
from tailrace.wire.arrow_decoding import (
    BatchChunk,
    ReadFields,
    RecordFields,
    decode_readable_to_arrow,
    plain_fields,
)
from tailrace.wire.batch import BatchHeader, read_header
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.records import records_before

TOPIC_COLUMNS: Mapping[str, pa.DataType] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "cursor": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "key": pa.string(),
    "value": pa.string(),
    "headers": pa.json_(),
    "source_table": pa.string(),
    "op": pa.string(),
    "payload_mode": pa.string(),
    "message_id": pa.string(),
}
"""The columns of `SELECT *`."""

HIDDEN_COLUMNS: Mapping[str, pa.DataType] = {"key_bytes": pa.binary(), "value_bytes": pa.binary()}
"""Columns that a query gets only if it names them."""

_EARLIEST_MS = -62_135_596_800_000
_LATEST_MS = 253_402_300_799_999


_log = logging.getLogger(__name__)

_MUCH_RECORDS = 20_000
_TOO_MUCH_RECORDS = 200_000
_WAIT_SECONDS = 10
_KERNELS = ("tailrace.wire.decoding_kernels", "tailrace.sql.select.json_kernels")
_COMPILE_SECONDS = 120


class TopicRelation:
    def __init__(
        self,
        view: TopicScan,
        columns: Sequence[str],
        bounds: ScanBounds,
        limits: Limits,
        read_fields: ReadFields,
        answer: ReadAnswer,
        fields: RecordUse | None = None,
        json_kernels: Callable[[], JsonKernels | None] = lambda: None,
    ) -> None:
        """`fields` are those of the JSON in values that are read as columns."""
        self._answer = answer
        self._json = None if fields is None else JsonFieldReader(fields, json_kernels)
        self._view = view
        # Values of which only fields are read are not decoded.
        self._columns = [name for name in columns if name != VALUE or fields is None or fields.is_read_otherwise]
        self.bounds = bounds
        self._limits = limits
        self._read_fields = read_fields
        types = {**TOPIC_COLUMNS, **HIDDEN_COLUMNS}
        self.schema = pa.schema([*((name, types[name]) for name in self._columns), *(self._json.schema if self._json else ())])
        self._nothing = pa.RecordBatch.from_pylist([], schema=self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records. Some batches are empty, so that a query can be stopped while it reads much that can't match."""
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yield the records of a few MiB of the log at a time, which are read at once and decoded with the first batch.

        Any thread may decode a part, also while another one reads or decodes the next.
        """
        for view in self._partitions():
            yield from self._partition(view)

    def ranges(self) -> list[tuple[int, Sequence[ScanRange]]]:
        """Return the partitions that are read, by their numbers, with their offsets. Reads the index of the log."""
        return [(view.partition.number, self._wanted(view)) for view in self._partitions()]

    @property
    def partition_count(self) -> int:
        return len(self._view.partitions)

    def _partitions(self) -> Iterator[PartitionScan]:
        for view in self._view.partitions:
            if self.bounds.partitions is None or view.partition.number in self.bounds.partitions:
                yield view

    def _partition(self, view: PartitionScan) -> Iterator[Iterator[pa.RecordBatch]]:
        for wanted in self._wanted(view):
            for piece in view.parts(wanted):
                chosen = self._chosen(piece)
                if not chosen:
                    yield iter((self._nothing,))
                    continue
                # Where the partition starts within a batch, the records before its start are hidden.
                hidden = self._records_before(wanted.start, chosen[0].batch)
                # Not in a loop, whose variables would keep decoded batches in memory until the next one is decoded.
                yield map(self._converted, filter(_has_rows, self._decoded(view, chosen, hidden)))

    def _records_before(self, start: Offset, batch: Buffer) -> int:
        before = start - read_header(batch).base_offset
        try:
            return records_before(batch, before, self._limits) if before > 0 else 0
        except InvalidRequestError:
            # The batch can't be decoded, so it is reported or left out as a whole.
            return 0

    def _wanted(self, view: PartitionScan) -> Sequence[ScanRange]:
        within = self._range(view)
        high = self.bounds.timestamps.high
        return (within,) if high is None else view.not_after(high, within)

    def _range(self, view: PartitionScan) -> ScanRange:
        start, end = view.bounds
        _, offsets, cursors, times = self.bounds
        if offsets.low is not None:
            start = max(start, Offset(offsets.low))
        if offsets.high is not None:
            end = min(end, Offset(offsets.high + 1))
        if times.low is not None and start < end:
            start = max(start, view.offset_at_time(times.low))
        if cursors.low is not None and start < end:
            start = max(start, view.offset_at_cursor(cursors.low))
        if cursors.high is not None and start < end:
            end = min(end, view.offset_at_cursor(cursors.high + 1))
        return ScanRange(start, end)

    def _chosen(self, piece: Sequence[PlacedBatch]) -> Sequence[PlacedBatch]:
        """Return the batches that can have a record at or after the lower bound of time."""
        low = self.bounds.timestamps.low
        if low is None:
            return piece
        newest = [read_header(placed.batch).max_timestamp for placed in piece]
        # Batches from before batches were checked may leave out the newest time in the header and still give records times.
        return [placed for placed, time in zip(piece, newest, strict=True) if time >= low or time < 0]

    def _decoded(self, view: PartitionScan, placed: Sequence[PlacedBatch], hidden: int) -> Iterator[pa.RecordBatch]:
        """Yield the records without the first `hidden` ones, which are all in the first batch."""
        number = view.partition.number
        first = read_header(placed[0].batch).base_offset

        def on_corrupt(head: BatchHeader, error: InvalidRequestError) -> None:
            nonlocal hidden
            corrupt = CorruptBatch(self._view.topic, number, head.base_offset, head.end_offset - 1, str(error))
            if not self._answer.skips_corrupt:
                raise corrupt.error from error
            self._answer.note(corrupt)
            hidden = 0 if head.base_offset == first else hidden

        def shown(decoded: pa.RecordBatch) -> pa.RecordBatch:
            nonlocal hidden
            left = decoded.slice(min(hidden, decoded.num_rows))
            hidden -= decoded.num_rows - left.num_rows
            return left

        readable = decode_readable_to_arrow(
            placed,
            self._columns,
            partition=number,
            limits=self._limits,
            read_fields=self._read_fields,
            on_corrupt=on_corrupt,
            derived=self._json,
        )
        return map(shown, readable)

    def _converted(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [_converted(column, kind) for column, kind in zip(decoded.columns, self.schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _has_rows(decoded: pa.RecordBatch) -> bool:
    return bool(decoded.num_rows)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _timestamps(column)
    if column.type == kind:
        return column
    return pa.ExtensionArray.from_storage(kind, column)


def _timestamps(column: pa.Array) -> pa.Array:
    """Return timestamps in microseconds, null for records without one or with one outside of the years 1 to 9999."""
    millis = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    unknown = _are_unknown(millis)
    if unknown.any():
        return pa.array(np.where(unknown, 0, millis) * 1000, pa.int64(), mask=unknown).view(pa.timestamp("us"))
    return pa.array(millis * 1000).view(pa.timestamp("us"))


def _are_unknown(millis: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    unknown: npt.NDArray[np.bool_] = (millis == NO_TIMESTAMP) | (millis < _EARLIEST_MS) | (millis > _LATEST_MS)
    return unknown


class FieldReader:
    """Fast path of `wire`'s plain decoder: switches to the compiled loops once 20,000 records were read. Thread-safe.

    `tests/property/test_arrow.py` holds both equal.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = 0
        self._loading: threading.Thread | None = None
        self._is_loaded = threading.Event()
        self._read: ReadFields = plain_fields
        self._json: JsonKernels | None = None

    def json_kernels(self) -> JsonKernels | None:
        """Return the loops that read fields of JSON, if they are loaded."""
        return self._json

    def __call__(self, chunk: BatchChunk, limits: Limits) -> RecordFields:
        if not self._is_loaded.is_set():
            self._count(sum(head.records for head in chunk.heads))
            if self._records >= _TOO_MUCH_RECORDS:
                self._is_loaded.wait(_WAIT_SECONDS)
        return self._read(chunk, limits)

    def load(self) -> None:
        """Load the compiled loops now, and return when that has succeeded or failed."""
        self._count(_MUCH_RECORDS)
        self._is_loaded.wait()

    def _count(self, records: int) -> None:
        with self._lock:
            self._records += records
            if self._loading is None and self._records >= _MUCH_RECORDS:
                self._loading = threading.Thread(target=self._load, name="tailrace-kernels", daemon=True)
                self._loading.start()

    def _load(self) -> None:
        try:
            if not _are_compiled():
                command = [sys.executable, "-c", f"import {', '.join(_KERNELS)}"]
                subprocess.run(command, check=True, timeout=_COMPILE_SECONDS, capture_output=True)  # noqa: S603
            from tailrace.sql.select.json_kernels import load_json_loops
            from tailrace.wire.decoding_kernels import load_decoding_kernels
            from tailrace.wire.fast_arrow_decoding import binary_array, load_compiled_fields

            decoding = load_decoding_kernels()
            self._json = JsonKernels(*load_json_loops(), decoding.are_text, partial(binary_array, decoding))
            self._read = load_compiled_fields()
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            _log.warning("Records are decoded without compiled loops, which is many times slower: %s", error)
        finally:
            self._is_loaded.set()


def _are_compiled() -> bool:
    """Return whether compiled loops are beside the code, where numba puts them if it can."""
    for name in _KERNELS:
        found = find_spec(name)
        if found is None or found.origin is None:
            return False
        code = Path(found.origin)
        if not any((code.parent / "__pycache__").glob(f"{code.stem}.*.nbi")):
            return False
    return True
