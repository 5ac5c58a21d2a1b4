"""The changes of the server's own tables as a Spark source of change rows. The router's first source.

The server says which tables have changes to be routed and how far each was routed; a batch begins there. What Spark's
checkpoint holds is only Spark's own count, so it does not matter whether it is old, foreign or gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.pipeline.change_rows import CHANGE_ARROW, CHANGE_SCHEMA, mark_row
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import DataLossError, RefusedError
from tailrace.pipeline.ranges import OffsetRange, limited, ranges_between, split
from tailrace.wire.arrow import decode_batches
from tailrace.wire.batch_stream import decode_batches as decode_stream
from tailrace.wire.change_kernels import load_row_images
from tailrace.wire.compiled_fields import compiled_fields

FORMAT = "tailrace_table_changes"
_FETCH_BYTES = 8 * MIB
_STEP_BYTES = 4 * MIB
_STEP_ROWS = 20_000
"""Of what all routes together make of one step, which takes effect whole."""
_ROWS_WORTH_A_TASK = 5_000
_WAIT_MS = 200
"""How long the server holds a question for new changes. Longer would delay the stop of a query."""
_STORED = ("offset", "cursor", "timestamp", "key_bytes", "value_bytes", "op", "only_route", "skip_routes")


class TableChanges(msgspec.Struct, frozen=True):
    """What the source must know."""

    server: str
    epoch: int
    """Of the router's lease: a reader that was left behind by one that lost it gets nothing more."""
    most_rows: int
    """Changes of one batch."""
    tasks: int
    patience_seconds: float

    def frame(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(TableChangesSource)
        return spark.readStream.format(FORMAT).option("options", msgspec.json.encode(self).decode()).load()


class TableChangesSource(DataSource):
    """Takes one option, `options`: `TableChanges` as JSON."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return CHANGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TableChangesReader(msgspec.json.decode(self.options["options"], type=TableChanges))


class ChangedTable(msgspec.Struct):
    """A table with changes to be routed, as the server tells it."""

    source: str
    table: int
    changes: str
    mark: int
    end: int
    routes: int


class ChangeRange(NamedTuple):
    """What one task reads."""

    source: str
    table: int
    changes: str
    routes: int
    start: int
    end: int


class TableChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"5/0": 17}`: by source, the end of the batch."""

    def __init__(self, options: TableChanges) -> None:
        self.options = options
        self.goal: dict[str, int] | None = None
        """Where a query with the trigger AvailableNow ends."""
        self.seen: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        return {table.source: table.mark for table in self._tables()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = {table.source: table.end for table in self._tables()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        tables = self._tables({**self.seen, **start}, _WAIT_MS) if self.goal is None else self._tables()
        self.seen = {table.source: table.end for table in tables}
        ends = self.seen if self.goal is None else self.goal
        waiting = {table.source: [ends[table.source]] for table in tables if table.mark < ends.get(table.source, 0)}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.most_rows
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
        return [InputPartition(tuple(_of_table(tables[each.topic], each))) for each in split(ranges, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with self._connect() as connection:
            yield from change_rows(connection, ChangeRange(*partition.value))

    def _tables(self, beyond: Mapping[str, int] | None = None, wait_ms: int = 0) -> list[ChangedTable]:
        question = {"epoch": self.options.epoch, "beyond": beyond or {}, "wait_ms": wait_ms}
        with self._connect() as connection:
            return msgspec.convert(connection.ask("POST", "/api/pipelines/router/sources", question), list[ChangedTable])

    def _connect(self) -> ServerConnection:
        return ServerConnection(self.options.server, self.options.patience_seconds)


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


def _of_table(table: ChangedTable, part: OffsetRange) -> ChangeRange:
    return ChangeRange(table.source, table.table, table.changes, table.routes, part.start, part.end)


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
