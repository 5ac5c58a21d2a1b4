"""The changes of the server's tables as a Spark source, from which the router reads steps.

The server says which tables have changes to route and up to which mark each was routed; a batch starts there. Spark's
checkpoint only numbers the batches, so it does not matter whether it is old, of another query or lost. Tasks fetch stored
batches and turn them into the rows that `steps.py` describes.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tailrace.api.pipelines import PendingSourceView, SourcesBody
from tailrace.model.errors import ServerUnreachableError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import DataLossError, is_topic_gone
from tailrace.pipeline.plan import OPERATIONS, CellSlots
from tailrace.pipeline.steps import CHANGES, STEP_BYTES, STEP_ROWS, ChangeStep, StepRows, change_schema
from tailrace.pipeline.topic_reading import OffsetRange, limited, ranges_between, split
from tailrace.wire.arrow_decoding import RECORD_COLUMNS, decode_to_arrow

FORMAT = "tailrace_table_changes"
_ROWS_WORTH_A_TASK = 5_000
_WAIT_MS = 200
"""How long the server may wait for new changes before it answers. Longer would delay the stop of a query."""


class TableChanges(NamedTuple):
    """The source, before the epoch of the lease and the cells are known."""

    server: ServerAddress
    max_rows: int
    """How many changes one batch may have."""
    retry_seconds: float

    def frame(self, spark: SparkSession, epoch: int, slots: CellSlots) -> DataFrame:
        spark.dataSource.register(TableChangesSource)
        wanted = WantedChanges(
            self.server, epoch, self.max_rows, spark.sparkContext.defaultParallelism, self.retry_seconds, slots
        )
        return spark.readStream.format(FORMAT).option("wanted", msgspec.json.encode(wanted).decode()).load()


class WantedChanges(msgspec.Struct, frozen=True):
    """What the reader of a query has to know."""

    server: ServerAddress
    epoch: int
    """Of the router's lease: a reader whose router has lost the lease gets nothing more."""
    max_rows: int
    tasks: int
    retry_seconds: float
    slots: CellSlots


class TableChangesSource(DataSource):
    """The Spark data source. Its one option, `wanted`, is a `WantedChanges` as JSON."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return change_schema(self._wanted().slots)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TableChangesReader(self._wanted())

    def _wanted(self) -> WantedChanges:
        return msgspec.json.decode(self.options["wanted"], type=WantedChanges)


class TableChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the sources. Spark's offsets are `{"5/0": 17}`: by source, the end of the batch."""

    def __init__(self, options: WantedChanges) -> None:
        self.options = options
        self.goal: dict[str, int] | None = None
        """The end of a query with the trigger AvailableNow."""
        self.seen: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        return {table.source: table.mark for table in self._tables()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = {table.source: table.end for table in self._tables()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        tables = self._tables({**self.seen, **start}, _WAIT_MS) if self.goal is None else self._tables()
        self.seen = {table.source: table.end for table in tables}
        ends = self.seen if self.goal is None else self.goal
        waiting = {table.source: [ends[table.source]] for table in tables if table.mark < ends.get(table.source, 0)}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_rows
        end = limited({table.source: [table.mark] for table in tables}, waiting, most)
        return {**start, **{source: ends[0] for source, ends in end.items()}}

    def reportLatestOffset(self) -> dict[str, int]:
        return {table.source: table.end for table in self._tables()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        tables = {table.source: table for table in self._tables()}
        marks = {source: [table.mark] for source, table in tables.items()}
        ranges = list(ranges_between(marks, {source: [at] for source, at in end.items() if source in tables}))
        rows = sum(each.end - each.start for each in ranges)
        tasks = min(self.options.tasks, 1 + rows // _ROWS_WORTH_A_TASK)
        return [InputPartition(_of_table(tables[each.topic], each)) for each in split(ranges, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with self._connect() as connection:
            yield from change_rows(connection, ChangeRange(*partition.value), self.options.slots)

    def _tables(self, beyond: Mapping[str, int] | None = None, wait_ms: int = 0) -> list[PendingSourceView]:
        body = SourcesBody(self.options.epoch, dict(beyond or {}), wait_ms)
        with self._connect() as connection:
            return connection.ask("/api/pipelines/router/sources", body, list[PendingSourceView])

    def _connect(self) -> ServerConnection:
        return ServerConnection(self.options.server, self.options.retry_seconds)


def _of_table(table: PendingSourceView, part: OffsetRange) -> tuple[str, int, str, str, int, int, int]:
    """Return the fields of a `ChangeRange`."""
    return (table.source, table.table, table.changes, str(table.changes_uuid), table.routes, part.start, part.end)


_FETCH_BYTES = 8 * MIB
_STORED = ("offset", "cursor", "timestamp", "key_bytes", "value_bytes", "op", "only_route", "skip_routes")
_NONE = pa.RecordBatch.from_pydict({name: pa.array([], RECORD_COLUMNS.get(name, pa.string())) for name in _STORED})


class ChangeRange(NamedTuple):
    """The part of a source that one task reads."""

    source: str
    table: int
    changes: str
    changes_uuid: str
    routes: int
    start: int
    end: int


def change_rows(connection: ServerConnection, wanted: ChangeRange, slots: CellSlots) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range's steps, in order. If the table is dropped meanwhile, the rest is left out."""
    with contextlib.suppress(_TableGoneError):
        yield from _change_rows(connection, wanted, slots)


class _TableGoneError(Exception):
    """The table of a range was dropped, even if another one has its name now."""


def _change_rows(connection: ServerConnection, wanted: ChangeRange, slots: CellSlots) -> Iterator[pa.RecordBatch]:
    steps = _Steps(wanted, slots)
    size = _StepSize(wanted.routes)
    at = wanted.start
    waiting: list[pa.RecordBatch] = []
    for rows in _stored_rows(connection, wanted):
        for part in size.split(rows):
            waiting.append(part)
            if size.is_full:
                end = part.column("offset")[-1].as_py() + 1
                yield steps.rows(at, end, waiting)
                at = end
                waiting = []
                size.reset()
    if at < wanted.end:
        yield steps.rows(at, wanted.end, waiting)


def _stored_rows(connection: ServerConnection, wanted: ChangeRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range, some thousands at a time."""
    # Imported in tasks only: loading the compiled loops takes a second.
    from tailrace.wire.fast_arrow_decoding import load_compiled_fields

    read_fields = load_compiled_fields()
    at = wanted.start
    while at < wanted.end:
        try:
            fetched = connection.batches(wanted.changes, 0, at, _FETCH_BYTES, topic_uuid=wanted.changes_uuid)
        except ServerUnreachableError:
            raise
        except TailraceError as error:
            if is_topic_gone(error):
                raise _TableGoneError from error
            raise DataLossError(f"changes {at} to {wanted.end} of {wanted.changes!r} can't be read: {error}") from error
        following = fetched.head.next_offset
        if following <= at:
            raise DataLossError(f"{wanted.changes!r} ends at {at}, before {wanted.end}")
        for batch in decode_to_arrow(fetched.batches, _STORED, partition=0, limits=DEFAULT_LIMITS, read_fields=read_fields):
            first = batch.column("offset")[0].as_py()
            yield batch.slice(max(0, at - first), max(0, wanted.end - max(at, first)))
        at = min(following, wanted.end)


class _Steps:
    def __init__(self, wanted: ChangeRange, slots: CellSlots) -> None:
        from tailrace.wire.fast_change_rows import load_row_images

        self._wanted = wanted
        self._rows = StepRows(slots)
        self._images = load_row_images()
        self._operations = pa.array(OPERATIONS)

    def rows(self, before: int, after: int, waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the rows of a step with these records. There may be none, if all were of aborted transactions.

        A TRUNCATE, which is about no row, is left out: no route takes it.
        """
        stored = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting or [_NONE])
        is_truncate = pc.equal(stored.column("op"), "truncate")
        if pc.any(is_truncate).as_py():
            stored = stored.filter(pc.invert(is_truncate))
        old, new = self._images(stored.column("value_bytes")) if stored.num_rows else (pa.nulls(0, pa.binary()),) * 2
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
            ChangeStep(move, pa.RecordBatch.from_arrays(changes, schema=CHANGES)),
            self._wanted.table,
            stored.column("only_route").cast(pa.int32()),
            stored.column("skip_routes"),
        )


class _StepSize:
    """Limits the size of steps: the more routes a table has, the fewer changes. Which of them match is known only later."""

    def __init__(self, routes: int) -> None:
        self._max_bytes = max(1, STEP_BYTES // max(1, routes))
        self._max_rows = max(1, STEP_ROWS // max(1, routes))
        self.reset()

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._max_bytes or self._rows >= self._max_rows

    def reset(self) -> None:
        self._bytes = self._rows = 0

    def split(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split the rows where the step is full. The caller must reset it there before it takes the next part."""
        values = rows.column("value_bytes")
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        at = 0
        while at < len(values):
            fitting = int(np.searchsorted(ends, ends[at] + self._max_bytes - self._bytes))
            stop = min(max(at + 1, fitting), at + self._max_rows - self._rows, len(values))
            self._bytes += int(ends[stop] - ends[at])
            self._rows += stop - at
            yield rows.slice(at, stop - at)
            at = stop
