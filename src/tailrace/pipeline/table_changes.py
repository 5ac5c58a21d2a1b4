"""The changes of the server's own tables as a Spark source of change rows. The router's first source.

The server says which tables have changes to be routed and how far each was routed; a batch begins there. What Spark's
checkpoint holds is only Spark's own count, so it does not matter whether it is old, foreign or gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tailrace.pipeline.address import ServerAddress
from tailrace.pipeline.cells import CellSlots
from tailrace.pipeline.change_rows import change_schema
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.ranges import OffsetRange, limited, ranges_between, split

FORMAT = "tailrace_table_changes"
_ROWS_WORTH_A_TASK = 5_000
_WAIT_MS = 200
"""How long the server holds a question for new changes. Longer would delay the stop of a query."""


class TableChanges(NamedTuple):
    """The source, before it is known for which router and which cells."""

    server: ServerAddress
    most_rows: int
    """Changes of one batch."""
    patience_seconds: float

    def frame(self, spark: SparkSession, epoch: int, slots: CellSlots) -> DataFrame:
        spark.dataSource.register(TableChangesSource)
        wanted = WantedChanges(
            self.server, epoch, self.most_rows, spark.sparkContext.defaultParallelism, self.patience_seconds, slots
        )
        return spark.readStream.format(FORMAT).option("wanted", msgspec.json.encode(wanted).decode()).load()


class WantedChanges(msgspec.Struct, frozen=True):
    """What a query's reader must know."""

    server: ServerAddress
    epoch: int
    """Of the router's lease: a reader that was left behind by one that lost it gets nothing more."""
    most_rows: int
    tasks: int
    patience_seconds: float
    slots: CellSlots


class TableChangesSource(DataSource):
    """Takes one option, `wanted`: `WantedChanges` as JSON."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return change_schema(self._wanted().slots)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TableChangesReader(self._wanted())

    def _wanted(self) -> WantedChanges:
        return msgspec.json.decode(self.options["wanted"], type=WantedChanges)


class ChangedTable(msgspec.Struct):
    """A table with changes to be routed, as the server tells it."""

    source: str
    table: int
    changes: str
    changes_uuid: str
    mark: int
    end: int
    routes: int


class TableChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"5/0": 17}`: by source, the end of the batch."""

    def __init__(self, options: WantedChanges) -> None:
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
        return [InputPartition(_of_table(tables[each.topic], each)) for each in split(ranges, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Only where it is used: its compiled loops would delay the start of every query, in a process that reads nothing.
        from tailrace.pipeline.change_reading import ChangeRange, change_rows

        with self._connect() as connection:
            yield from change_rows(connection, ChangeRange(*partition.value), self.options.slots)

    def _tables(self, beyond: Mapping[str, int] | None = None, wait_ms: int = 0) -> list[ChangedTable]:
        question = {"epoch": self.options.epoch, "beyond": beyond or {}, "wait_ms": wait_ms}
        with self._connect() as connection:
            return msgspec.convert(connection.ask("POST", "/api/pipelines/router/sources", question), list[ChangedTable])

    def _connect(self) -> ServerConnection:
        return ServerConnection(self.options.server, self.options.patience_seconds)


def _of_table(table: ChangedTable, part: OffsetRange) -> tuple[str, int, str, str, int, int, int]:
    """The fields of a `ChangeRange`."""
    return (table.source, table.table, table.changes, table.changes_uuid, table.routes, part.start, part.end)
