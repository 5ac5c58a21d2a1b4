"""ADD SOURCE, EXPLAIN ... ADD SOURCE and DROP SOURCE.

EXPLAIN is a dry run over the newest changes of the table; see `dry_run`.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.sources.sources import check_old_rows
from tailrace.model.errors import OverloadedError, RouteExistsError, UnknownTableError, UnsupportedSqlError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset, RouteId
from tailrace.model.limits import Limits
from tailrace.model.record import Record
from tailrace.model.route import DIALECT, Operation, Route
from tailrace.model.source import SourceTable
from tailrace.model.table import ColumnType, Table
from tailrace.model.text import counted
from tailrace.sql.grammar.lexer import SqlToken, read_tokens
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.routes.check import CheckedRoute, check_route, old_columns
from tailrace.sql.routes.compile import compile_for_spark, parts_in_python
from tailrace.sql.routes.dry_run import dry_run
from tailrace.sql.routes.evaluation import RouteOutcome
from tailrace.sql.statements import AddRouteStatement, DropRouteStatement
from tailrace.sql.tables.change_events import version_of
from tailrace.sql.tables.tables import Tables
from tailrace.wire.routing import ChangeEvent, read_change, route_change

_OPERATIONS: Sequence[Operation] = ("insert", "update", "delete")
_NO_ID = RouteId(0)
COLUMNS = (
    ResultColumn("cursor", ColumnType("bigint")),
    ResultColumn("op", ColumnType("text")),
    ResultColumn("key", ColumnType("json")),
    ResultColumn("matches", ColumnType("text")),
    ResultColumn("partition", ColumnType("integer")),
    ResultColumn("payload", ColumnType("json")),
)


class RouteHandler:
    def __init__(self, broker: Broker, tables: Tables, limits: Limits) -> None:
        self._broker = broker
        self._tables = tables
        self._limits = limits
        self._threads = ThreadPoolExecutor(1, "tailrace-dry-run")
        self._dry_runs = 0

    async def add(self, asked: AddRouteStatement) -> Route:
        route, _, table = self._checked(asked)
        if self._broker.sources.find_table(table.name) is not None:
            return await self._broker.routes.add(route, lambda: self._broker.sources.check_unaltered(table))
        return await self._tables.add_route(route, table)

    async def drop(self, asked: DropRouteStatement) -> None:
        await self._broker.routes.drop(asked.topic, asked.table, asked.route_id)

    async def explain(self, asked: AddRouteStatement) -> Result:
        """Return what the route would do with the newest changes of the table. Nothing is changed."""
        route, checked, table = self._checked(asked)
        # A route that exists already can be explained too.
        with suppress(RouteExistsError):
            self._broker.routes.check_new(route)
        size = self._broker.positions.size(self._changes_topic(table), 0)
        with self._broker.answers.answer() as held:
            await held.reserve(min(self._limits.explained_bytes, size))
            changes = await self._newest_changes(table)
            outcomes = await self._in_thread(checked, table, changes)
            partitions = self._broker.topics.get(asked.topic).topic.partitions
            rows = [_row(route, change, outcome, partitions) for change, outcome in zip(changes, outcomes, strict=True)]
        return Result(COLUMNS, rows, _summary([row[3] for row in rows], parts_in_python(checked, route.sql)))

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _checked(self, asked: AddRouteStatement) -> tuple[Route, CheckedRoute, Table]:
        self._broker.route_owners.require_add(asked.topic, asked.table)
        topic = self._broker.topics.get(asked.topic).topic
        captured = self._broker.sources.find_table(asked.table)
        table = self._broker.tables.get(asked.table) if captured is None else captured.table
        operations = tuple(operation for operation in _OPERATIONS if operation in asked.operations)
        checked = check_route(asked.where, asked.partition_by, operations, table, self._limits, has_snapshot=asked.snapshot)
        if captured is not None:
            _check_captured(asked, captured, checked)
        route = Route(
            id=_NO_ID,
            topic=topic.id,
            topic_name=topic.name,
            table=table.id,
            table_name=table.name,
            changes=table.changes,
            operations=operations,
            where=None if asked.where is None else plain_text(asked.where.text),
            partition_by=tuple(plain_text(one.text) for one in asked.partition_by),
            payload=asked.payload,
            snapshot=asked.snapshot,
            dialect=DIALECT,
            sql=compile_for_spark(checked, table, self._limits, is_captured=captured is not None),
        )
        return route, checked, table

    def _changes_topic(self, table: Table) -> str:
        live = self._broker.topics.by_id(table.changes)
        if live is None:
            raise UnknownTableError(f"the table {table.name!r} was dropped")
        return live.topic.name

    async def _newest_changes(self, table: Table) -> list[ChangeEvent]:
        limits = self._limits
        topic = self._changes_topic(table)
        start = await self._broker.positions.resolve(topic, 0, StartEdge.EARLIEST)
        end = await self._broker.positions.resolve(topic, 0, StartEdge.LATEST)
        newest: deque[ChangeEvent] = deque()
        left = limits.explained_bytes
        is_present = True
        # Rows that snapshots have read are skipped, so older changes may be read, up to the limit of bytes. Changes of an older
        # version of the table have other columns, and no route to come applies to them.
        while end > start and left > 0 and len(newest) < limits.explained_changes and is_present:
            begin = Offset(max(start, end - limits.explained_changes))
            records = await self._records(topic, begin, end, left)
            for record in reversed(records):
                left -= len(record.value or b"")
                change = read_change(record)
                is_present = version_of(record) == table.schema_version
                if (left < 0 and newest) or len(newest) == limits.explained_changes or not is_present:
                    break
                if change.op not in ("read", "truncate"):
                    newest.appendleft(change)
            end = begin
        return list(newest)

    async def _records(self, topic: str, begin: Offset, end: Offset, most_bytes: int) -> Sequence[Record]:
        """Return the records between two offsets, or the last of them up to about so many bytes."""
        held = 0
        records: deque[Record] = deque()
        while begin < end:
            read = await self._broker.committed_reader.read(
                topic, 0, begin, max_records=min(end - begin, self._limits.read_records)
            )
            for record in read.records:
                records.append(record)
                held += len(record.value or b"")
                while held > most_bytes and len(records) > 1:
                    held -= len(records.popleft().value or b"")
            begin = read.next_offset
        return records

    async def _in_thread(self, checked: CheckedRoute, table: Table, changes: list[ChangeEvent]) -> list[RouteOutcome]:
        if self._dry_runs >= self._limits.queued_queries:
            raise OverloadedError(f"{self._dry_runs} dry runs are waiting, as many as queued_queries allows; try again later")
        loop = asyncio.get_running_loop()
        self._dry_runs += 1
        done = self._threads.submit(dry_run, checked, table, changes, self._limits)
        # Counted down when the thread is free again, not when the caller stops waiting.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finished))
        return await asyncio.wrap_future(done)

    def _finished(self) -> None:
        self._dry_runs -= 1


def _check_captured(asked: AddRouteStatement, captured: SourceTable, checked: CheckedRoute) -> None:
    """Raise if the route needs something of a captured table that PostgreSQL does not send, or that is not kept here."""
    if asked.snapshot:
        raise UnsupportedSqlError(
            f"the rows of {captured.table.name!r} are in PostgreSQL and not kept here, so a route can't begin with them; leave"
            " snapshot out",
            asked.line,
            asked.column,
        )
    sends_both = asked.payload == "diff" and "update" in asked.operations
    check_old_rows(captured, old_columns(checked, asked.operations), needs_all=sends_both)


def _row(route: Route, change: ChangeEvent, outcome: RouteOutcome, partitions: int) -> Sequence[object]:
    columns = [change.cursor, change.op, msgspec.json.decode(change.key)]
    if change.op not in route.operations:
        return (*columns, "false", None, None)
    if outcome.failed or outcome.matches is not True:
        return (*columns, "failed" if outcome.failed else "null" if outcome.matches is None else "false", None, None)
    made = route_change(
        change,
        route=route.id,
        table=route.table_name,
        payload=route.payload,
        partitions=partitions,
        key_values=outcome.key_values if route.partition_by else None,
    )
    return (*columns, "true", made.partition, msgspec.json.decode(made.value))


def _summary(matches: Sequence[object], in_python: Sequence[str]) -> str:
    matching, failing = matches.count("true"), matches.count("failed")
    columns = f"{matching:,} of {counted(len(matches), 'change')} match{'es' if matching == 1 else ''}"
    failures = f", {failing:,} fail{'s' if failing == 1 else ''}" if failing else ""
    return f"{columns}{failures}" + (f"; Python evaluates {', '.join(in_python)}" if in_python else "")


def plain_text(text: str) -> str:
    """Return an expression without comments, superfluous spaces and the brackets around it, so that equal ones look equal."""
    tokens = read_tokens(text)
    while _is_enclosed(tokens):
        tokens = tokens[1:-1]
    parts = []
    end = tokens[0].start
    for token in tokens:
        parts += [" " if token.start > end else "", text[token.start : token.end]]
        end = token.end
    return "".join(parts)


def _is_enclosed(tokens: Sequence[SqlToken]) -> bool:
    """Return whether the first bracket closes at the end."""
    if len(tokens) < 3 or tokens[0].text != "(":
        return False
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return at == len(tokens) - 1
    return False
