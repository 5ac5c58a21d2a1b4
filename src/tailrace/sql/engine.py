"""Runs SQL: takes a text and its parameters, and returns a result for each statement.

Each statement is a transaction of its own, unless BEGIN and COMMIT combine several into one, which is one frame of the log.
After an error the rest of the text is not run; the error says which statement failed and that the ones before it took effect.
This module decides who runs what; `handlers`, `tables`, `select` and `routes` do the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    ConstraintError,
    InvalidRequestError,
    QueryLimitError,
    SqlError,
    SqlForbiddenError,
    TailraceError,
    UnknownTableError,
    UnsupportedSqlError,
)
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Message
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.explain.statements import ExplainHandler
from tailrace.sql.fast_insert import FastInsertParser, fast_parse_insert
from tailrace.sql.handlers.consume import ConsumeHandler, RedriveHandler
from tailrace.sql.handlers.copy import CopiedRows, CopyHandler
from tailrace.sql.handlers.create_table_as import CreateTableAsHandler
from tailrace.sql.handlers.insert import TopicInsertHandler
from tailrace.sql.handlers.security import SecurityHandler
from tailrace.sql.handlers.shadows import ShadowHandler
from tailrace.sql.handlers.show import ShowHandler
from tailrace.sql.handlers.sources import SourceHandler
from tailrace.sql.handlers.tables import TableHandler
from tailrace.sql.handlers.topics import TopicHandler
from tailrace.sql.handlers.views import ViewHandler
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, assign_parameters, by_name
from tailrace.sql.parse import bind, kind_of
from tailrace.sql.privileges import Privileges
from tailrace.sql.results import Result, ResultEncoder, ResultStream
from tailrace.sql.routes.check import route_evaluation
from tailrace.sql.routes.statements import RouteHandler
from tailrace.sql.schema_names import with_found_names
from tailrace.sql.select.execution import tables_and_topics
from tailrace.sql.select.queries import QueryRunner, with_present_tables
from tailrace.sql.session_user import as_user, session_user
from tailrace.sql.statement_cache import ParserProcess, StatementCache
from tailrace.sql.statements import (
    AckStatement,
    AddPartitionsStatement,
    AddRouteStatement,
    AlterQuotaStatement,
    AlterShadowStatement,
    AlterSourceStatement,
    AlterTableStatement,
    AlterTypeStatement,
    BeginStatement,
    ClearTopicStatement,
    CommitStatement,
    ConsumeStatement,
    CreateIndexStatement,
    CreateRoleStatement,
    CreateShadowStatement,
    CreateSourceStatement,
    CreateTableAsStatement,
    CreateTableStatement,
    CreateTokenStatement,
    CreateTopicStatement,
    CreateTypeStatement,
    CreateUserStatement,
    CreateViewStatement,
    DescribeStatement,
    DropIndexStatement,
    DropRoleStatement,
    DropRouteStatement,
    DropShadowStatement,
    DropSourceStatement,
    DropTableStatement,
    DropTokenStatement,
    DropTopicStatement,
    DropTypeStatement,
    DropUserStatement,
    DropViewStatement,
    ExplainStatement,
    GrantRoleStatement,
    GrantStatement,
    PauseShadowStatement,
    Query,
    RedriveStatement,
    ResyncSourceStatement,
    RevokeRoleStatement,
    RevokeStatement,
    RollbackStatement,
    SetPasswordStatement,
    SetPipelineStatement,
    SetTopicStatement,
    ShowGrantsStatement,
    ShowStatement,
    SkipLostStatement,
    SnapshotSourceStatement,
    Statement,
    TruncateStatement,
    Write,
)
from tailrace.sql.tables.jobs import TableStatement, WriteTiming
from tailrace.sql.tables.tables import Tables

StatementHandler = Callable[[Any], Awaitable[Result]]

_INLINE_INSERT_BYTES = 64 * KIB
_INLINE_PARAMETERS = 10_000


class StatementEngine:
    """Open it with `StatementEngine.open` once the broker has started, and close it before the broker."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "StatementEngine":
        """Open the tables in the folder and bring them up to date with the log."""
        return cls(broker, await Tables.open(folder, broker, clock, limits), clock, limits)

    def __init__(self, broker: Broker, tables: Tables, clock: Clock, limits: Limits) -> None:
        self.tables = tables
        self._broker = broker
        self._stats = broker.changes.stats
        self._limits = limits
        broker.intake.evaluation_of = route_evaluation
        self._routes = RouteHandler(broker, tables, limits)
        queries = self._queries = QueryRunner(broker, tables, clock, limits)
        self._parser = ParserProcess(limits)
        self._statements = StatementCache(limits, self._parser)
        self._inserts = FastInsertParser(limits)
        topics = TopicHandler(broker)
        self._defining = TableHandler(broker, tables)
        self._consuming = ConsumeHandler(broker, limits)
        showing = ShowHandler(broker)
        sources = SourceHandler(broker)
        shadows = ShadowHandler(broker, limits)
        views = ViewHandler(broker, queries, limits)
        security = SecurityHandler(broker, clock)
        self._privileges = Privileges(broker)
        self._topic_inserts = TopicInsertHandler(broker, queries)
        self._filling = CreateTableAsHandler(broker, tables, queries, limits)
        self._explaining = ExplainHandler(broker, tables, queries, self._filling, self._is_topic, self._write)
        self._copying = CopyHandler(broker, self.execute, self._privileges, limits)
        self._handlers: dict[type[Statement], StatementHandler] = {
            CreateTopicStatement: topics.create,
            SetTopicStatement: topics.set,
            AddPartitionsStatement: topics.add_partitions,
            ClearTopicStatement: topics.clear,
            SetPipelineStatement: self._set_pipeline,
            DropTopicStatement: topics.drop,
            CreateSourceStatement: sources.create,
            AlterSourceStatement: sources.alter,
            SnapshotSourceStatement: sources.snapshot,
            ResyncSourceStatement: sources.resync,
            DropSourceStatement: sources.drop,
            CreateShadowStatement: shadows.create,
            AlterShadowStatement: shadows.alter,
            PauseShadowStatement: shadows.pause,
            SkipLostStatement: shadows.skip_lost,
            DropShadowStatement: shadows.drop,
            AckStatement: self._consuming.ack,
            RedriveStatement: RedriveHandler(broker, queries, limits).redrive,
            ShowStatement: showing.show,
            DescribeStatement: showing.describe,
            CreateTableStatement: self._defining.create,
            DropTableStatement: self._defining.drop,
            AlterTableStatement: self._defining.alter,
            TruncateStatement: self._defining.truncate,
            CreateIndexStatement: self._defining.create_index,
            DropIndexStatement: self._defining.drop_index,
            CreateTypeStatement: self._defining.create_type,
            AlterTypeStatement: self._defining.alter_type,
            DropTypeStatement: self._defining.drop_type,
            AddRouteStatement: self._add_route,
            DropRouteStatement: self._drop_route,
            CreateViewStatement: views.create,
            DropViewStatement: views.drop,
            CreateUserStatement: security.create_user,
            SetPasswordStatement: security.set_password,
            DropUserStatement: security.drop_user,
            CreateRoleStatement: security.create_role,
            DropRoleStatement: security.drop_role,
            GrantRoleStatement: security.grant_role,
            RevokeRoleStatement: security.revoke_role,
            GrantStatement: security.grant,
            RevokeStatement: security.revoke,
            CreateTokenStatement: security.create_token,
            DropTokenStatement: security.drop_token,
            ShowGrantsStatement: security.show_grants,
            AlterQuotaStatement: security.alter_quota,
        }

    async def execute(self, text: str, params: Parameters = NO_PARAMETERS, answer: ReadAnswer | None = None) -> list[Result]:
        """Run all statements of a text and return a result for each. Cancel the task to stop it.

        Records in the results use the memory budget of `answer`, which the caller closes once they are sent.
        """
        try:
            if answer is not None:
                return await self._execute(text, params, answer)
            with self._broker.answers.answer() as answer:
                return await self._execute(text, params, answer)
        except TailraceError as error:
            self._failed(error)
            raise
        except RecursionError as error:
            # Trees, parameters and results are walked recursively in many places.
            self._stats.failures += 1
            raise SqlError(
                "the statement or one of its values is nested too deeply; split it into smaller statements"
            ) from error

    def execute_at_once(self, text: str, params: Parameters) -> Result | None:
        """Return the result of a text that was run before and selects one row by a unique key.

        `None` means that `execute` has to be asked, which also raises the errors.
        """
        statements = self._statements.find(text)
        if statements is None or len(statements) != 1 or not isinstance(statements[0], Query):
            return None
        try:
            (values,) = assign_parameters(statements, params)
            result = self._queries.run_at_once(statements[0], values)
        except TailraceError:
            return None
        if result is not None:
            self._stats.statements[kind_of(statements[0])] += 1
        return result

    async def copy_rows(self, table: str, data: bytes, *, skip: bool) -> CopiedRows:
        """Call `CopyHandler.insert`."""
        return await self._copying.insert(table, data, skip=skip)

    async def close(self) -> None:
        """Stop queries, finish writes and end the parser process."""
        await self._parser.close()
        self._filling.abort()
        self._queries.close()
        await self._filling.close()
        self._routes.close()
        await self.tables.close()

    async def stream(self, text: str, params: Parameters, encoder: ResultEncoder, answer: ReadAnswer) -> ResultStream:
        """Run one statement and return its rows as a stream, which the caller must close. A query may return any number of
        rows.

        Errors before the first part of the stream are raised here.
        """
        statements = await self._parse(text)
        if len(statements) != 1:
            raise InvalidRequestError(
                f"{encoder.media_type} can hold the rows of one statement, but the text has {len(statements)};"
                " send them one by one"
            )
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
                (unit,) = plan(statements, assign_parameters(statements, params))
                values = unit.parameters if isinstance(unit, PlannedStatement) else NO_PARAMETERS
                await self._queries.stream(statement, values, out, answer)
                self._stats.statements[kind_of(statement)] += 1
            else:
                (result,) = await self._execute(text, params, answer)
                if result.truncated:
                    raise QueryLimitError(
                        f"the result has more rows than query_rows allows ({self._limits.query_rows}); request fewer rows"
                    )
                await asyncio.to_thread(out.put, result.columns, result.rows)
            out.end()
        except asyncio.CancelledError:
            out.end(QueryLimitError("the query was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001  raised to the reader of the stream
            self._failed(error)
            out.end(error)

    def _failed(self, error: Exception) -> None:
        self._stats.failures += 1
        if isinstance(error, SqlForbiddenError):
            self._privileges.note(error)

    async def _execute(self, text: str, params: Parameters, answer: ReadAnswer) -> list[Result]:
        statements = await self._parse(text)
        if len(params) > _INLINE_PARAMETERS:
            shared = await asyncio.to_thread(assign_parameters, statements, params)
        else:
            shared = assign_parameters(statements, params)
        units = plan(statements, shared)
        results: list[Result] = []
        for unit in units:
            try:
                results += (
                    await with_present_tables(partial(self._run_transaction, unit, answer))
                    if isinstance(unit, PlannedTransaction)
                    else [await self._run(unit, answer)]
                )
            except TailraceError as error:
                if len(statements) == 1:
                    raise
                raise _in_context(error, unit, len(statements)) from error
            self._count(unit)
        return results

    def _count(self, unit: "PlannedStatement | PlannedTransaction") -> None:
        if isinstance(unit, PlannedStatement):
            self._stats.statements[kind_of(unit.statement)] += 1
        elif unit.is_committed:
            self._stats.statements.update(kind_of(planned.statement) for planned in unit.statements)

    async def _parse(self, text: str) -> Sequence[Statement]:
        template = self._inserts.template_of(text)
        if template is not None:
            if len(text) <= _INLINE_INSERT_BYTES:
                insert = fast_parse_insert(text, template)
            else:
                insert = await asyncio.to_thread(fast_parse_insert, text, template)
            if insert is not None:
                return [with_found_names(insert, self._broker)]
        user = session_user(self._broker)
        return [as_user(with_found_names(one, self._broker), user) for one in await self._statements.parse(text)]

    async def _run(self, planned: "PlannedStatement", answer: ReadAnswer) -> Result:
        statement, params = planned.statement, planned.parameters
        if isinstance(statement, Query):
            return await self._queries.run(statement, params, answer)
        if not isinstance(statement, Write | CreateTableAsStatement | ExplainStatement):
            statement = bind(statement, by_name(statement, params))
        self._privileges.check(statement)
        if isinstance(statement, Write):
            try:
                return await self._write(statement, params, answer)
            except ConstraintError as error:
                self._privileges.check_shown(error, statement)
                raise
        if isinstance(statement, CreateTableAsStatement):
            return await self._filling.create(statement, params, answer)
        if isinstance(statement, ExplainStatement):
            try:
                return await self._explaining.explain(statement, params, answer)
            except ConstraintError as error:
                self._privileges.check_shown(error, statement.statement)
                raise
        if isinstance(statement, ConsumeStatement):
            return await self._consuming.consume(statement, answer)
        return await self._handlers[type(statement)](statement)

    async def _write(self, write: Write, params: Parameters, answer: ReadAnswer, timing: WriteTiming | None = None) -> Result:
        if self._is_topic(write):
            return await self._topic_inserts.insert(write, params)
        if not write.has_queries:
            return (await self.tables.write([write], [params], timing=timing))[0]

        async def attempt() -> Result:
            planned = await self._with_queries(write, params, answer)
            return (await self.tables.write([planned], [params], timing=timing))[0]

        return await with_present_tables(attempt)

    async def _with_queries(
        self, write: Write, params: Parameters, answer: ReadAnswer, *, in_transaction: bool = False
    ) -> Write:
        """Return a write with what runs its queries, if it has any."""
        if not write.has_queries:
            return write
        queries = await self._queries.for_write(write, params, answer, in_transaction=in_transaction)
        return msgspec.structs.replace(write, queries=queries)

    async def _run_transaction(self, transaction: "PlannedTransaction", answer: ReadAnswer) -> list[Result]:
        """Run all statements as one frame of the log, or none of them."""
        if not transaction.is_committed:
            skipped = [Result(status="not run, because of ROLLBACK")] * len(transaction.statements)
            return [Result(status="BEGIN"), *skipped, Result(status="ROLLBACK")]
        on_tables: list[TableStatement] = []
        params: list[Parameters] = []
        indexes: list[int] = []
        results = [Result()] * len(transaction.statements)
        messages: list[Message] = []
        for _, statement, _ in transaction.statements:
            self._privileges.check(statement)
        for index, (_, statement, values) in enumerate(transaction.statements):
            if isinstance(statement, Write) and self._is_topic(statement):
                published = await self._topic_inserts.messages(statement, values, in_transaction=True)
                messages += published
                results[index] = Result(status=f"INSERT {len(published)}", affected=len(published))
                continue
            if isinstance(statement, Query):
                on_tables.append(await self._queries.in_transaction(statement, values, answer))
            elif isinstance(statement, TruncateStatement):
                self._defining.check_truncate(statement)
                on_tables.append(statement)
            elif isinstance(statement, Write):
                on_tables.append(await self._with_queries(statement, values, answer, in_transaction=True))
            params.append(values)
            indexes.append(index)
        if on_tables:
            try:
                written = await self.tables.write(on_tables, params, messages)
            except ConstraintError as error:
                self._privileges.check_shown(error, *(planned.statement for planned in transaction.statements))
                raise
            for index, result in zip(indexes, written, strict=True):
                results[index] = result
        elif messages:
            await self._broker.publisher.publish(messages)
        return [Result(status="BEGIN"), *results, Result(status="COMMIT")]

    async def _add_route(self, asked: AddRouteStatement) -> Result:
        if asked.explain:
            return await self._routes.explain(asked)
        route = await self._routes.add(asked)
        return Result(status=f"ADD SOURCE {route.id}", cursor=route.since)

    async def _drop_route(self, asked: DropRouteStatement) -> Result:
        await self._routes.drop(asked)
        return Result(status="DROP SOURCE" if asked.route_id is None else "DROP ROUTE")

    async def _set_pipeline(self, asked: SetPipelineStatement) -> Result:
        await self._broker.pipelines.set_latency(asked.name, asked.latency)
        return Result(status="ALTER PIPELINE")

    def _is_topic(self, write: Write) -> bool:
        """Return whether the target is a topic and not a table. Raises `UnknownTableError` if it is neither."""
        if self._broker.tables.find(write.target) is not None:
            return False
        if self._broker.views.find(write.target) is not None:
            raise UnsupportedSqlError(
                f"{write.target!r} is a view, which can't be written to; write to the tables that it reads",
                write.line,
                write.column,
            )
        if self._broker.topics.find_folded(write.target) is None:
            hint = did_you_mean(write.target, tables_and_topics(self._broker))
            position = write.position_of(write.target_location)
            raise UnknownTableError(f"there is no table or topic {write.target!r}{hint}", *position)
        return True


class PlannedStatement(NamedTuple):
    """A statement with its parameters and its number in the text, counted from 1."""

    number: int
    statement: Statement
    parameters: Parameters


class PlannedTransaction(NamedTuple):
    """The statements between BEGIN and COMMIT or ROLLBACK."""

    begin: PlannedStatement
    statements: Sequence[PlannedStatement]
    end: PlannedStatement

    @property
    def is_committed(self) -> bool:
        return isinstance(self.end.statement, CommitStatement)


def plan(statements: Sequence[Statement], parameters: Sequence[Parameters]) -> list[PlannedStatement | PlannedTransaction]:
    """Return the statements of a text as single statements and transactions.

    Everything is decided before anything runs, so a BEGIN without its COMMIT changes nothing.
    """
    units: list[PlannedStatement | PlannedTransaction] = []
    begin: PlannedStatement | None = None
    inside: list[PlannedStatement] = []
    for number, (statement, values) in enumerate(zip(statements, parameters, strict=True), 1):
        planned = PlannedStatement(number, statement, values)
        if isinstance(statement, BeginStatement):
            if begin is not None:
                raise _misplaced(planned, "a transaction is already open; COMMIT or ROLLBACK it first")
            begin, inside = planned, []
        elif isinstance(statement, CommitStatement | RollbackStatement):
            if begin is None:
                raise _misplaced(planned, "no transaction is open; start one with BEGIN")
            units.append(PlannedTransaction(begin, inside, planned))
            begin = None
        elif begin is None:
            units.append(planned)
        elif isinstance(statement, Write | Query | TruncateStatement):
            inside.append(planned)
        else:
            raise UnsupportedSqlError(
                "only SELECT, INSERT, UPDATE, DELETE and TRUNCATE can be part of a transaction",
                statement.line,
                statement.column,
            )
    if begin is not None:
        raise _misplaced(begin, "the transaction has no COMMIT or ROLLBACK; send the whole transaction in one request")
    return units


def _misplaced(planned: PlannedStatement, message: str) -> SqlError:
    return SqlError(message, planned.statement.line, planned.statement.column)


def _in_context(error: TailraceError, unit: PlannedStatement | PlannedTransaction, count: int) -> TailraceError:
    """Return the error with the outcome of the other statements: those that took effect must not be sent again."""
    if isinstance(unit, PlannedTransaction):
        first = unit.begin
        which = f"the transaction of statements {first.number} to {unit.end.number} had no effect"
    else:
        first = unit
        which = f"statement {first.number} of {count}"
    message = f"{which}, at line {first.statement.line}, column {first.statement.column}: {error}"
    done = first.number - 1
    if done:
        message += f" ({_effect_of(done)}; the rest was not run)"
    reported = error.afresh()
    reported.args = (message,)
    if done:
        reported.__dict__.update(retriable=False, outcome="unknown")
    return reported


def _effect_of(done: int) -> str:
    return "the statement before it took effect" if done == 1 else f"the {done} statements before it took effect"
