"""Queries over a broker: topics, tables and `system.*`, asked by SQL text."""

import atexit
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.model.commit import FetchedBatches
from tailrace.model.errors import UnsupportedSqlError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.sql.parameters import NO_PARAMETERS, Parameters
from tailrace.sql.parse import parse
from tailrace.sql.results import Result
from tailrace.sql.select.queries import TopicQueries
from tailrace.sql.select.tables import ReadTables
from tailrace.sql.select.workers import WorkerPool
from tailrace.sql.statements import Query
from tailrace.store.contract import Store
from tailrace.store.memory import MemoryStore
from tests.support.brokers import running_broker
from tests.support.tables import TableSql, running_tables


class NoTables:
    async def query(self, query: Query, params: Parameters, *, most_rows: int | None = None) -> Result:
        raise UnsupportedSqlError("this test has no tables")


class Asker:
    def __init__(self, broker: Broker, queries: TopicQueries) -> None:
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
    async with running_broker(store, limits=limits) as broker, _queries(broker, NoTables(), limits) as queries:
        yield Asker(broker, queries)


@asynccontextmanager
async def asking_with_tables(folder: Path, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[tuple[Asker, TableSql]]:
    async with running_tables(folder, limits=limits) as sql, _queries(sql.broker, sql.tables, limits) as queries:
        yield Asker(sql.broker, queries), sql


@cache
def workers_for(limits: Limits) -> WorkerPool:
    """Shared by all tests with these limits, because a process takes a second to start."""
    workers = WorkerPool(limits)
    atexit.register(workers.close)
    return workers


@asynccontextmanager
async def _queries(broker: Broker, tables: ReadTables, limits: Limits) -> AsyncIterator[TopicQueries]:
    queries = TopicQueries(broker, tables, limits, workers_for(limits))
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
