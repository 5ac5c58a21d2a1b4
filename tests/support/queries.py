"""Queries over a broker: topics, tables and `system.*`, asked by SQL text."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tailrace.broker.broker import Broker
from tailrace.model.clock import Clock, SystemClock
from tailrace.model.commit import FetchedBatches
from tailrace.model.errors import UnsupportedSqlError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.table import Table
from tailrace.sql.parameters import NO_PARAMETERS, Parameters
from tailrace.sql.parse import parse
from tailrace.sql.results import Result
from tailrace.sql.select.queries import QueryRunner, QueryTables
from tailrace.sql.statements import Query
from tailrace.sql.tables.columnar_copies import ColumnarCopies
from tailrace.sql.tables.readers import StoredRows, TableSnapshot
from tailrace.sql.tables.values import StoredValue
from tailrace.store.contract import Store
from tailrace.store.memory import MemoryStore
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql, running_tables
from tests.support.workers import workers_for

T = TypeVar("T")


class NoTables:
    @property
    def copies(self) -> ColumnarCopies:
        raise UnsupportedSqlError("this test has no tables")

    async def read_rows(self, sql: str, values: Sequence[StoredValue], table: Table) -> StoredRows:
        raise UnsupportedSqlError("this test has no tables")

    def read_one(self, sql: str, values: Sequence[StoredValue], table: Table) -> tuple[StoredValue, ...] | None:
        raise UnsupportedSqlError("this test has no tables")

    async def read_few(self, work: Callable[[TableSnapshot], T], table: Table) -> T:
        raise UnsupportedSqlError("this test has no tables")

    def snapshot(self, is_cancelled: Callable[[], bool]) -> AbstractContextManager[TableSnapshot]:
        raise UnsupportedSqlError("this test has no tables")


class Asker:
    def __init__(self, broker: Broker, queries: QueryRunner) -> None:
        self.broker = broker
        self.queries = queries

    async def result(self, text: str, params: Parameters = NO_PARAMETERS) -> Result:
        (query,) = parse(text)
        assert isinstance(query, Query)
        return await self.queries.run(query, params)

    async def rows(self, text: str, params: Parameters = NO_PARAMETERS) -> list[tuple[object, ...]]:
        return [tuple(row) for row in (await self.result(text, params)).rows]

    async def column(self, text: str, params: Parameters = NO_PARAMETERS) -> list[object]:
        return [value for (value,) in await self.rows(text, params)]

    async def value(self, text: str, params: Parameters = NO_PARAMETERS) -> object:
        ((value,),) = await self.rows(text, params)
        return value


@asynccontextmanager
async def asking(store: Store | None = None, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Asker]:
    """Topics and `system.*`, on a store in memory unless another is given."""
    async with running_broker(store, limits=limits) as broker, querying(broker, NoTables(), limits, SystemClock()) as queries:
        yield Asker(broker, queries)


@asynccontextmanager
async def asking_with_tables(folder: Path, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[tuple[Asker, TableSql]]:
    async with running_tables(folder, limits=limits) as sql, querying(sql.broker, sql.tables, limits, SystemClock()) as queries:
        yield Asker(sql.broker, queries), sql


@asynccontextmanager
async def querying(
    broker: Broker, tables: QueryTables, limits: Limits, clock: Clock | None = None
) -> AsyncIterator[QueryRunner]:
    queries = QueryRunner(broker, tables, ManualClock() if clock is None else clock, limits, workers_for(limits))
    try:
        yield queries
    finally:
        queries.close()


class ReadCounter(MemoryStore):
    """Counts the bytes of the batches that are read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        fetched = super().fetch(partition, offset, max_bytes)
        self.read_bytes += sum(map(len, fetched.batches))
        return fetched
