"""Tables on a store, run by SQL text, and what their change events say the rows must be."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tailrace.broker.broker import Broker
from tailrace.model.clock import Clock
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Message, Record
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, assign_parameters
from tailrace.sql.parse import parse
from tailrace.sql.results import Result
from tailrace.sql.select.queries import QueryRunner
from tailrace.sql.statements import (
    AlterTableStatement,
    CreateIndexStatement,
    CreateTableStatement,
    DropIndexStatement,
    DropTableStatement,
    Query,
    TruncateStatement,
    Write,
)
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.jobs import TableStatement
from tailrace.sql.tables.tables import Tables
from tailrace.store.contract import Store
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.workers import workers_for


class TableSql:
    """Runs statements about tables, each by itself unless they are handed over as one transaction."""

    def __init__(self, broker: Broker, tables: Tables, queries: QueryRunner | None = None) -> None:
        self.broker = broker
        self.tables = tables
        self._queries = tables, queries or self._new_queries()

    @property
    def queries(self) -> QueryRunner:
        tables, queries = self._queries
        if tables is not self.tables:
            # The tables were opened again.
            queries.close()
            self._queries = self.tables, self._new_queries()
        return self._queries[1]

    def _new_queries(self) -> QueryRunner:
        return QueryRunner(self.broker, self.tables, ManualClock(), DEFAULT_LIMITS, workers_for(DEFAULT_LIMITS))

    async def run(self, text: str, params: Parameters = NO_PARAMETERS) -> Result:
        """One statement."""
        (statement,) = parse(text)
        if isinstance(statement, CreateTableStatement):
            await self.tables.create(statement)
            return Result()
        if isinstance(statement, AlterTableStatement):
            await self.tables.alter(statement)
            return Result()
        if isinstance(statement, CreateIndexStatement):
            await self.tables.create_index(statement)
            return Result()
        if isinstance(statement, DropIndexStatement):
            for name in statement.names:
                found = self.tables.find_index(name)
                assert found is not None, f"there is no index {name}"
                await self.tables.drop_index(*found)
            return Result()
        if isinstance(statement, DropTableStatement):
            for name in statement.names:
                await self.tables.drop(name)
            return Result()
        if isinstance(statement, Query):
            (given,) = assign_parameters([statement], params)
            return await self.queries.run(statement, given)
        (result,) = await self.transact(text, params)
        return result

    async def rows(self, text: str, params: Parameters = NO_PARAMETERS) -> list[tuple[object, ...]]:
        return [tuple(row) for row in (await self.run(text, params)).rows]

    async def value(self, text: str, params: Parameters = NO_PARAMETERS) -> object:
        ((value,),) = await self.rows(text, params)
        return value

    async def transact(self, text: str, params: Parameters = NO_PARAMETERS, messages: Sequence[Message] = ()) -> list[Result]:
        """All statements of the text as one transaction."""
        statements = [statement for statement in parse(text) if isinstance(statement, Write | TruncateStatement | Query)]
        shared = assign_parameters(statements, params)
        given = [
            statement.rows if isinstance(statement, Write) and statement.rows is not None else values
            for statement, values in zip(statements, shared, strict=True)
        ]
        with self.broker.answers.answer() as answer:
            steps: list[TableStatement] = []
            for statement, values in zip(statements, given, strict=True):
                if isinstance(statement, Query):
                    steps.append(await self.queries.in_transaction(statement, values, answer))
                elif isinstance(statement, Write) and statement.has_queries:
                    is_part = len(statements) > 1
                    queries = await self.queries.for_write(statement, values, answer, in_transaction=is_part)
                    steps.append(msgspec.structs.replace(statement, queries=queries))
                else:
                    steps.append(statement)
            return await self.tables.write(steps, given, messages)

    async def records(self, table: str) -> list[Record]:
        return await records_of(self.broker, table)

    async def events(self, table: str) -> list[dict[str, Any]]:
        """The values of the table's change events, without what differs from run to run."""
        return [
            {name: event[name] for name in ("op", "key", "old", "new")}
            for event in (json.loads(record.value or b"") for record in await self.records(table))
        ]


@asynccontextmanager
async def running_tables(
    folder: Path, store: Store | None = None, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[TableSql]:
    clock = clock or ManualClock()
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  a test waits for nothing else
    async with running_broker(store, clock, limits) as broker:
        tables = await Tables.open(folder, broker, clock, limits)
        queries = QueryRunner(broker, tables, clock, limits, workers_for(limits))
        try:
            yield TableSql(broker, tables, queries)
        finally:
            queries.close()
            await tables.close()


async def records_of(broker: Broker, topic: str) -> list[Record]:
    """All records of the first partition."""
    found: list[Record] = []
    offset = Offset(0)
    while True:
        read = await broker.committed_reader.read(topic, 0, offset, max_records=1000)
        if not read.records:
            return found
        found += read.records
        offset = read.next_offset


def replayed(events: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows by their keys that these events leave, in plain JSON: a second opinion on what the table must hold.

    What snapshots have read changes nothing.
    """
    rows: dict[str, dict[str, Any]] = {}
    for event in events:
        key = json.dumps(event["key"])
        before = rows.get(key)
        if event["op"] == "read":
            assert before == event["new"], f"{event} is not what the table held, {before}"
            continue
        assert before == event["old"], f"{event} does not follow from {before}"
        if event["new"] is None:
            del rows[key]
        else:
            rows[key] = event["new"]
    return rows


def as_older_version(path: Path) -> None:
    """Make the file what versions before checksums wrote."""
    new, old = apsw.Connection(str(path) + ".old", vfs="unix"), apsw.Connection(str(path))
    for connection in (new, old):
        register_collations(connection)
    new.pragma("journal_mode", "wal")
    new.pragma("user_version", 1)
    for name, sql in old.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall():
        new.execute(str(sql))
        for row in old.execute(f'SELECT * FROM "{name}"'):
            new.execute(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(row))})', row)
    for connection in (new, old):
        connection.close()
    path.with_name(path.name + ".old").rename(path)
    assert path.read_bytes()[20] == 0
