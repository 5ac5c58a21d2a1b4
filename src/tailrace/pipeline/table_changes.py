"""The changes of the server's own tables as a Spark source of change rows. The router's first source.

How far the router has come is kept by the server, not by Spark: a task begins at the mark, even where an old checkpoint would
have it begin earlier, so no change is read twice and no checkpoint is ever needed to be right.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
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
_WAIT_MS = 200
_STORED = ("offset", "cursor", "timestamp", "key_bytes", "value_bytes", "op", "only_route", "skip_routes")


class ChangedTable(msgspec.Struct, frozen=True):
    id: int
    changes: str
    """The name of the topic that holds its changes."""
    source: str
    """The name of its mark."""


class ChangeOptions(msgspec.Struct, frozen=True):
    server: str
    pipeline: str
    tables: tuple[ChangedTable, ...]
    most_rows: int
    """Changes of one batch."""
    tasks: int
    patience_seconds: float


class TableChangesSource(DataSource):
    """Takes one option, `options`: `ChangeOptions` as JSON."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return CHANGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TableChangesReader(msgspec.json.decode(self.options["options"], type=ChangeOptions))


class TableChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"5/0": 17}`: by mark, the next change to be read."""

    def __init__(self, options: ChangeOptions) -> None:
        self.options = options
        self.goal: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return self._marks()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = self._ends({})

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self.goal if self.goal is not None else self._ends(start)
        if isinstance(limit, ReadAllAvailable):
            return end
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.most_rows
        short = limited({name: [at] for name, at in start.items()}, {name: [at] for name, at in end.items()}, most)
        return {name: ends[0] for name, ends in short.items()}

    def reportLatestOffset(self) -> dict[str, int]:
        return self._ends({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        marks = self._marks()
        begun = {name: [marks.get(name, start.get(name, 0))] for name in end}
        ranges = list(ranges_between(begun, {name: [at] for name, at in end.items()}))
        return [InputPartition(tuple(each)) for each in split(ranges, self.options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted = OffsetRange(*partition.value)
        table = next(table for table in self.options.tables if table.source == wanted.topic)
        with self._connect() as connection:
            yield from _change_rows(connection, table, wanted)

    def _marks(self) -> dict[str, int]:
        with self._connect() as connection:
            marks: Mapping[str, int] = connection.ask("GET", f"/api/pipelines/{self.options.pipeline}/marks")["marks"]
        return {table.source: marks[table.source] for table in self.options.tables}

    def _ends(self, beyond: Mapping[str, int]) -> dict[str, int]:
        topics = {table.changes: table.source for table in self.options.tables}
        waits = {table.changes: [beyond[table.source]] for table in self.options.tables if table.source in beyond}
        with self._connect() as connection:
            ends = connection.offsets(topics, beyond=waits, wait_ms=_WAIT_MS if waits else 0).offsets
        return {topics[name]: offsets[0] for name, offsets in ends.items()}

    def _connect(self) -> ServerConnection:
        return ServerConnection(self.options.server, self.options.patience_seconds)


def _change_rows(connection: ServerConnection, table: ChangedTable, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The changes from `start` up to `end`, with a mark after each piece that was fetched."""
    read_fields = compiled_fields()
    images = load_row_images()
    at = wanted.start
    while at < wanted.end:
        try:
            answer = connection.batches(table.changes, 0, at, _FETCH_BYTES)
        except RefusedError as error:
            raise DataLossError(
                f"changes {at} to {wanted.end} of {table.changes!r} can't be read: {error}. What was not routed is gone; drop"
                " the routes of the table and add them again with snapshot = true"
            ) from error
        upto = min(int(answer.headers["tailrace-next-offset"]), wanted.end)
        decoded = decode_batches(
            list(decode_stream(answer.body)), _STORED, partition=0, limits=DEFAULT_LIMITS, read_fields=read_fields
        )
        for batch in decoded:
            offsets = batch.column("offset")
            first = max(0, at - offsets[0].as_py())
            rows = batch.slice(first, max(0, upto - offsets[0].as_py() - first))
            if rows.num_rows:
                old, new = images(rows.column("value_bytes"))
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.repeat(table.source, rows.num_rows),
                        pa.repeat(pa.scalar(table.id, pa.int32()), rows.num_rows),
                        rows.column("op"),
                        rows.column("key_bytes"),
                        old,
                        new,
                        rows.column("offset"),
                        rows.column("cursor"),
                        rows.column("timestamp").cast(pa.int64()),
                        rows.column("only_route").cast(pa.int32()),
                        rows.column("skip_routes"),
                        pa.nulls(rows.num_rows, pa.int64()),
                        pa.nulls(rows.num_rows, pa.int64()),
                    ],
                    schema=CHANGE_ARROW,
                )
        yield mark_row(table.source, at, upto)
        at = upto
