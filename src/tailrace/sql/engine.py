"""Runs SQL: a text and its parameters in, a result for each statement out.

Each statement stands for itself, unless BEGIN and COMMIT make some of them one transaction, which is one frame of the log.
After an error nothing more of the text is run; the error says which statement it was, and that those before it took effect.
This module decides who runs what; `handlers`, `tables`, `select` and `routes` do it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
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
from tailrace.sql.answer_stream import AnswerStream, RowEncoder
from tailrace.sql.cache import ParsedTexts
from tailrace.sql.handlers.consuming import ConsumeStatements
from tailrace.sql.handlers.filling import FillStatements, source_of
from tailrace.sql.handlers.publishing import PublishStatements
from tailrace.sql.handlers.redriving import RedriveStatements
from tailrace.sql.handlers.showing import ShowStatements
from tailrace.sql.handlers.topics import TopicStatements
from tailrace.sql.long_texts import LongTexts
from tailrace.sql.near_names import did_you_mean, tables_and_topics
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, by_name, share_out
from tailrace.sql.parse import bind, kind_of
from tailrace.sql.places import place_of
from tailrace.sql.plain_inserts import PlainInserts, read_plain_insert
from tailrace.sql.plan import Step, Transaction, plan
from tailrace.sql.result import Result
from tailrace.sql.routes.statements import RouteStatements
from tailrace.sql.select.queries import Queries
from tailrace.sql.statements import (
    Ack,
    AddPartitions,
    AddSource,
    ClearTopic,
    Consume,
    CreateTable,
    CreateTopic,
    Describe,
    DropSource,
    DropTable,
    DropTopic,
    Query,
    Redrive,
    SetTopic,
    Show,
    Statement,
    Write,
)
from tailrace.sql.tables.tables import Tables

Handler = Callable[[Any], Awaitable[Result]]

_READ_INLINE = 64 * KIB
_SHARED_OUT_INLINE = 10_000


class SqlEngine:
    def __init__(self, broker: Broker, tables: Tables, routes: RouteStatements, queries: Queries, limits: Limits) -> None:
        self._broker = broker
        self._stats = broker.changes.stats
        self._limits = limits
        self._tables = tables
        self._routes = routes
        self._queries = queries
        self._long_texts = LongTexts(broker.tables.find, limits)
        self._parsed = ParsedTexts(limits, self._long_texts)
        self._plain_inserts = PlainInserts(limits)
        topics = TopicStatements(broker)
        self._consuming = ConsumeStatements(broker, limits)
        showing = ShowStatements(broker)
        self._publishing = PublishStatements(broker, queries)
        self._filling = FillStatements(queries)
        self._handlers: dict[type[Statement], Handler] = {
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

    async def stream(self, text: str, params: Parameters, encoder: RowEncoder, answer: ReadAnswer) -> AnswerStream:
        """Run one statement and give its rows in parts, any number of them if it is a query. To be closed by whoever asked.

        What goes wrong before the first part is raised here.
        """
        statements = await self._parse(text)
        if len(statements) != 1:
            raise InvalidRequestError(f"{encoder.media_type} holds the rows of one statement, not of {len(statements)}")
        out = AnswerStream(encoder, self._limits)
        running = asyncio.create_task(self._run_into(out, statements, text, params, answer))
        out.on_close(running.cancel)
        try:
            await out.ready()
        except BaseException:
            out.close()
            raise
        return out

    async def _run_into(
        self, out: AnswerStream, statements: Sequence[Statement], text: str, params: Parameters, answer: ReadAnswer
    ) -> None:
        try:
            (statement,) = statements
            if isinstance(statement, Query):
                (unit,) = plan(statements, share_out(statements, params))
                values = unit.parameters if isinstance(unit, Step) else NO_PARAMETERS
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
                    await self._run_transaction(unit) if isinstance(unit, Transaction) else [await self._run(unit, answer)]
                )
            except TailraceError as error:
                if len(statements) == 1:
                    raise
                raise _in_context(error, unit, len(statements)) from error
            self._count(unit)
        return results

    def _count(self, unit: Step | Transaction) -> None:
        if isinstance(unit, Step):
            self._stats.statements[kind_of(unit.statement)] += 1
        elif unit.is_kept:
            self._stats.statements.update(kind_of(step.statement) for step in unit.steps)

    async def _parse(self, text: str) -> Sequence[Statement]:
        shape = self._plain_inserts.shape_of(text)
        if shape is not None:
            if len(text) <= _READ_INLINE:
                insert = read_plain_insert(text, shape)
            else:
                insert = await asyncio.to_thread(read_plain_insert, text, shape)
            if insert is not None:
                return [insert]
        return await self._parsed.parse(text)

    async def _run(self, step: Step, answer: ReadAnswer) -> Result:
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

    async def _run_transaction(self, transaction: Transaction) -> list[Result]:
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
            place = place_of(write.tree.this) or (write.line, write.column)
            raise UnknownTableError(f"there is no table or topic {write.target!r}{hint}", *place)
        return True

    def _is_on_tables(self, query: Query) -> bool:
        """Whether it reads tables and nothing else."""
        return (
            bool(query.sources)
            and not query.has_functions
            and all(self._broker.tables.find(name) is not None for name in query.sources)
        )


def _in_context(error: TailraceError, unit: Step | Transaction, count: int) -> TailraceError:
    """The same error, with what became of the statements before and after it. What was done once must not be sent again."""
    if isinstance(unit, Transaction):
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
