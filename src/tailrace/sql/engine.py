"""Which statements of a text stand for themselves, and which are one transaction.

All of it is decided before anything is run, so a BEGIN without its COMMIT changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    InvalidRequestError,
    QueryLimitError,
    SqlError,
    TailraceError,
    UnknownTableError,
    UnsupportedSqlError,
)
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Message
from tailrace.sql.fast_insert import FastInsertParser, fast_parse_insert
from tailrace.sql.handlers.consume import ConsumeStatements, RedriveStatements
from tailrace.sql.handlers.insert import FillStatements, TopicInserts, source_of
from tailrace.sql.handlers.show import ShowStatements
from tailrace.sql.handlers.topics import TopicStatements
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, by_name, share_out
from tailrace.sql.parse import bind, kind_of
from tailrace.sql.results import Result, ResultEncoder, ResultStream
from tailrace.sql.routes.statements import RouteStatements
from tailrace.sql.select.queries import TopicQueries
from tailrace.sql.statement_cache import ParserProcess, StatementCache
from tailrace.sql.statements import (
    Ack,
    AddPartitions,
    AddSource,
    Begin,
    ClearTopic,
    Commit,
    Consume,
    CreateTable,
    CreateTopic,
    Describe,
    DropSource,
    DropTable,
    DropTopic,
    Query,
    Redrive,
    Rollback,
    SetTopic,
    Show,
    Statement,
    Write,
)
from tailrace.sql.suggestions import did_you_mean, tables_and_topics
from tailrace.sql.syntax_trees import position_of
from tailrace.sql.tables.tables import Tables


class PlannedStatement(NamedTuple):
    """A statement, its parameters, and its number in the text, from 1."""

    number: int
    statement: Statement
    parameters: Parameters


class PlannedTransaction(NamedTuple):
    """What stands between BEGIN and its end."""

    begin: PlannedStatement
    steps: Sequence[PlannedStatement]
    end: PlannedStatement

    @property
    def is_kept(self) -> bool:
        return isinstance(self.end.statement, Commit)


def plan(statements: Sequence[Statement], parameters: Sequence[Parameters]) -> list[PlannedStatement | PlannedTransaction]:
    units: list[PlannedStatement | PlannedTransaction] = []
    begin: PlannedStatement | None = None
    inside: list[PlannedStatement] = []
    for number, (statement, values) in enumerate(zip(statements, parameters, strict=True), 1):
        step = PlannedStatement(number, statement, values)
        if isinstance(statement, Begin):
            if begin is not None:
                raise _misplaced(step, "a transaction has begun already; COMMIT or ROLLBACK it first")
            begin, inside = step, []
        elif isinstance(statement, Commit | Rollback):
            if begin is None:
                raise _misplaced(step, "there is no transaction; begin one with BEGIN")
            units.append(PlannedTransaction(begin, inside, step))
            begin = None
        elif begin is None:
            units.append(step)
        elif isinstance(statement, Write | Query):
            inside.append(step)
        else:
            raise UnsupportedSqlError(
                "only SELECT, INSERT, UPDATE and DELETE can be part of a transaction", statement.line, statement.column
            )
    if begin is not None:
        raise _misplaced(begin, "the transaction has no COMMIT or ROLLBACK; a transaction is one request")
    return units


def _misplaced(step: PlannedStatement, message: str) -> SqlError:
    return SqlError(message, step.statement.line, step.statement.column)


StatementHandler = Callable[[Any], Awaitable[Result]]

_READ_INLINE = 64 * KIB
_SHARED_OUT_INLINE = 10_000


class SqlEngine:
    def __init__(self, broker: Broker, tables: Tables, routes: RouteStatements, queries: TopicQueries, limits: Limits) -> None:
        self._broker = broker
        self._stats = broker.changes.stats
        self._limits = limits
        self._tables = tables
        self._routes = routes
        self._queries = queries
        self._long_texts = ParserProcess(broker.tables.find, limits)
        self._parsed = StatementCache(limits, self._long_texts)
        self._plain_inserts = FastInsertParser(limits)
        topics = TopicStatements(broker)
        self._consuming = ConsumeStatements(broker, limits)
        showing = ShowStatements(broker)
        self._publishing = TopicInserts(broker, queries)
        self._filling = FillStatements(queries)
        self._handlers: dict[type[Statement], StatementHandler] = {
            CreateTopic: topics.create,
            SetTopic: topics.set,
            AddPartitions: topics.add_partitions,
            ClearTopic: topics.clear,
            DropTopic: topics.drop,
            Ack: self._consuming.ack,
            Redrive: RedriveStatements(broker, queries).redrive,
            Show: showing.show,
            Describe: showing.describe,
            CreateTable: self._create_table,
            DropTable: self._drop_table,
            AddSource: self._add_source,
            DropSource: self._drop_source,
        }

    async def execute(self, text: str, params: Parameters = NO_PARAMETERS, answer: ReadAnswer | None = None) -> list[Result]:
        """Run all statements of a text, and give a result for each. To stop it, cancel the task.

        Records in the results take the room of `answer`, which the caller closes when they are sent.
        """
        try:
            if answer is not None:
                return await self._execute(text, params, answer)
            with self._broker.answers.answer() as answer:
                return await self._execute(text, params, answer)
        except TailraceError:
            self._stats.failures += 1
            raise
        except RecursionError as error:
            # Trees, parameters and answers are walked by recursion in many places.
            self._stats.failures += 1
            raise SqlError("the statement, or one of its values, is nested too deep; take it apart") from error

    async def close(self) -> None:
        """End the process that parses long texts."""
        await self._long_texts.close()

    async def stream(self, text: str, params: Parameters, encoder: ResultEncoder, answer: ReadAnswer) -> ResultStream:
        """Run one statement and give its rows in parts, any number of them if it is a query. To be closed by whoever asked.

        What goes wrong before the first part is raised here.
        """
        statements = await self._parse(text)
        if len(statements) != 1:
            raise InvalidRequestError(f"{encoder.media_type} holds the rows of one statement, not of {len(statements)}")
        out = ResultStream(encoder, self._limits)
        running = asyncio.create_task(self._run_into(out, statements, text, params, answer))
        out.on_close(running.cancel)
        try:
            await out.ready()
        except BaseException:
            out.close()
            raise
        return out

    async def _run_into(
        self, out: ResultStream, statements: Sequence[Statement], text: str, params: Parameters, answer: ReadAnswer
    ) -> None:
        try:
            (statement,) = statements
            if isinstance(statement, Query):
                (unit,) = plan(statements, share_out(statements, params))
                values = unit.parameters if isinstance(unit, PlannedStatement) else NO_PARAMETERS
                if self._is_on_tables(statement):
                    await self._tables.stream(statement, values, out)
                else:
                    await self._queries.stream(statement, values, out, answer)
                self._stats.statements[kind_of(statement)] += 1
            else:
                (result,) = await self._execute(text, params, answer)
                if result.truncated:
                    raise QueryLimitError(f"there are more rows than query_rows allows ({self._limits.query_rows})")
                await asyncio.to_thread(out.put, result.columns, result.rows)
            out.end()
        except asyncio.CancelledError:
            out.end(QueryLimitError("the query was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001  whoever takes the parts is told
            self._stats.failures += 1
            out.end(error)

    async def _execute(self, text: str, params: Parameters, answer: ReadAnswer) -> list[Result]:
        statements = await self._parse(text)
        if len(params) > _SHARED_OUT_INLINE:
            shared = await asyncio.to_thread(share_out, statements, params)
        else:
            shared = share_out(statements, params)
        units = plan(statements, shared)
        results: list[Result] = []
        for unit in units:
            try:
                results += (
                    await self._run_transaction(unit)
                    if isinstance(unit, PlannedTransaction)
                    else [await self._run(unit, answer)]
                )
            except TailraceError as error:
                if len(statements) == 1:
                    raise
                raise _in_context(error, unit, len(statements)) from error
            self._count(unit)
        return results

    def _count(self, unit: PlannedStatement | PlannedTransaction) -> None:
        if isinstance(unit, PlannedStatement):
            self._stats.statements[kind_of(unit.statement)] += 1
        elif unit.is_kept:
            self._stats.statements.update(kind_of(step.statement) for step in unit.steps)

    async def _parse(self, text: str) -> Sequence[Statement]:
        shape = self._plain_inserts.shape_of(text)
        if shape is not None:
            if len(text) <= _READ_INLINE:
                insert = fast_parse_insert(text, shape)
            else:
                insert = await asyncio.to_thread(fast_parse_insert, text, shape)
            if insert is not None:
                return [insert]
        return await self._parsed.parse(text)

    async def _run(self, step: PlannedStatement, answer: ReadAnswer) -> Result:
        statement, params = step.statement, step.parameters
        if isinstance(statement, Query):
            return await self._query(statement, params, answer)
        if isinstance(statement, Write):
            return await self._write(statement, params)
        bound = bind(statement, by_name(statement, params))
        if isinstance(bound, Consume):
            return await self._consuming.consume(bound, answer)
        return await self._handlers[type(bound)](bound)

    async def _query(self, query: Query, params: Parameters, answer: ReadAnswer) -> Result:
        if self._is_on_tables(query):
            return await self._tables.query(query, params)
        return await self._queries.run(query, params, answer)

    async def _write(self, write: Write, params: Parameters) -> Result:
        if self._is_topic(write):
            return await self._publishing.insert(write, params)
        source = source_of(write)
        if source is not None and source.sources and not self._is_on_tables(source):
            write = await self._filling.with_rows(write, source, params)
            params = write.rows or ()
            if not params:
                return Result(status="INSERT 0", affected=0)
        (result,) = await self._tables.write([write], [params])
        return result

    async def _run_transaction(self, transaction: PlannedTransaction) -> list[Result]:
        """Everything in one frame, or nothing."""
        if not transaction.is_kept:
            skipped = [Result(status="not run, because of ROLLBACK")] * len(transaction.steps)
            return [Result(status="BEGIN"), *skipped, Result(status="ROLLBACK")]
        on_tables: list[Write | Query] = []
        params: list[Parameters] = []
        places: list[int] = []
        results = [Result()] * len(transaction.steps)
        messages: list[Message] = []
        for place, (_, statement, values) in enumerate(transaction.steps):
            if isinstance(statement, Write) and self._is_topic(statement):
                published = await self._publishing.messages(statement, values, in_transaction=True)
                messages += published
                results[place] = Result(status=f"INSERT {len(published)}", affected=len(published))
                continue
            if isinstance(statement, Query) and not self._is_on_tables(statement):
                raise UnsupportedSqlError(
                    "a transaction reads tables only; query topics outside of it", statement.line, statement.column
                )
            if isinstance(statement, Write | Query):
                on_tables.append(statement)
                params.append(values)
                places.append(place)
        if on_tables:
            for place, result in zip(places, await self._tables.write(on_tables, params, messages), strict=True):
                results[place] = result
        elif messages:
            await self._broker.publish(messages)
        return [Result(status="BEGIN"), *results, Result(status="COMMIT")]

    async def _create_table(self, asked: CreateTable) -> Result:
        if asked.if_not_exists and self._broker.tables.find(asked.name) is not None:
            return Result(status="CREATE TABLE, which exists")
        await self._tables.create(asked)
        return Result(status="CREATE TABLE")

    async def _drop_table(self, asked: DropTable) -> Result:
        table = self._broker.tables.find(asked.name)
        if table is None and asked.if_exists:
            return Result(status="DROP TABLE, which does not exist")
        if table is None and self._broker.topics.find(asked.name) is not None:
            raise UnknownTableError(f"{asked.name!r} is a topic; DROP TOPIC removes it")
        await self._tables.drop(asked.name, cascade=asked.cascade)
        return Result(status="DROP TABLE")

    async def _add_source(self, asked: AddSource) -> Result:
        if asked.explain:
            return await self._routes.explain(asked)
        route = await self._routes.add(asked)
        return Result(status=f"ADD SOURCE {route.id}", cursor=route.since)

    async def _drop_source(self, asked: DropSource) -> Result:
        await self._routes.drop(asked)
        return Result(status="DROP SOURCE")

    def _is_topic(self, write: Write) -> bool:
        if self._broker.tables.find(write.target) is not None:
            return False
        if self._broker.topics.find(write.target) is None:
            hint = did_you_mean(write.target, tables_and_topics(self._broker))
            place = position_of(write.tree.this) or (write.line, write.column)
            raise UnknownTableError(f"there is no table or topic {write.target!r}{hint}", *place)
        return True

    def _is_on_tables(self, query: Query) -> bool:
        """Whether it reads tables and nothing else."""
        return (
            bool(query.sources)
            and not query.has_functions
            and all(self._broker.tables.find(name) is not None for name in query.sources)
        )


def _in_context(error: TailraceError, unit: PlannedStatement | PlannedTransaction, count: int) -> TailraceError:
    """The same error, with what became of the statements before and after it. What was done once must not be sent again."""
    if isinstance(unit, PlannedTransaction):
        first = unit.begin
        which = f"the transaction of statements {first.number} to {unit.end.number} took no effect"
    else:
        first = unit
        which = f"statement {first.number} of {count}"
    said = f"{which}, at line {first.statement.line}, column {first.statement.column}: {error}"
    done = first.number - 1
    if done:
        said += f" (the {done} before it took effect, the rest was not run)"
    told = error.afresh()
    told.args = (said,)
    if done:
        told.__dict__.update(retriable=False, outcome="unknown")
    return told


class Sql:
    """Opened with `Sql.open` once the broker has started, and closed before it."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "Sql":
        """Open the tables in the folder and bring them up to the log."""
        return cls(broker, await Tables.open(folder, broker, clock, limits), limits)

    def __init__(self, broker: Broker, tables: Tables, limits: Limits) -> None:
        self.tables = tables
        self._routes = RouteStatements(broker, tables, limits)
        self._queries = TopicQueries(broker, tables, limits)
        self.engine = SqlEngine(broker, tables, self._routes, self._queries, limits)

    async def close(self) -> None:
        """Stop queries, finish writes."""
        await self.engine.close()
        self._queries.close()
        self._routes.close()
        await self.tables.close()
