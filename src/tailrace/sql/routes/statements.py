"""ADD SOURCE, EXPLAIN ... ADD SOURCE and DROP SOURCE.

EXPLAIN is a dry run: DuckDB evaluates the compiled route over the newest changes of the table. Only the columns that the route
uses are converted. DuckDB has no access to files, the network or settings, and limits on time and memory; the SQL that it runs
comes from `compile`, never from a user.
"""

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Timer
from typing import Any, NamedTuple

import msgspec
from sqlglot import exp

from tailrace.broker.broker import Broker
from tailrace.model.errors import CorruptionError, OverloadedError, QueryLimitError, RouteExistsError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset, RouteId
from tailrace.model.limits import Limits
from tailrace.model.record import Record
from tailrace.model.route import Operation, Route
from tailrace.model.table import CHANGES_PREFIX, ColumnType, Table
from tailrace.model.text import counted
from tailrace.sql.dialect import Tailrace
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.routes.check import CheckedRoute, check_route
from tailrace.sql.routes.compile import CompiledRoute, compile_for_spark, compile_route
from tailrace.sql.routes.engines import DUCKDB
from tailrace.sql.routes.expression import columns_of
from tailrace.sql.statements import AddSourceStatement, DropSourceStatement
from tailrace.sql.tables.tables import Tables
from tailrace.wire.routing import ChangeEvent, KeyValue, read_change, route_change

_decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
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

    async def add(self, asked: AddSourceStatement) -> Route:
        route, _, _ = self._checked(asked)
        return await self._tables.add_route(route)

    async def drop(self, asked: DropSourceStatement) -> None:
        await self._broker.routes.drop(asked.topic, asked.table)

    async def explain(self, asked: AddSourceStatement) -> Result:
        """Return what the route would do with the newest changes of the table. Nothing is changed."""
        route, checked, table = self._checked(asked)
        # A route that exists already can be explained too.
        with suppress(RouteExistsError):
            self._broker.routes.check_new(route)
        size = self._broker.positions.size(CHANGES_PREFIX + table.name, 0)
        with self._broker.answers.answer() as held:
            await held.reserve(min(self._limits.explained_bytes, size))
            changes = await self._newest_changes(table)
            outcomes = await self._in_thread(checked, table, changes)
            partitions = self._broker.topics.get(asked.topic).topic.partitions
            rows = [_row(route, change, outcome, partitions) for change, outcome in zip(changes, outcomes, strict=True)]
        return Result(COLUMNS, rows, _summary([row[3] for row in rows]))

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _checked(self, asked: AddSourceStatement) -> tuple[Route, CheckedRoute, Table]:
        topic = self._broker.topics.get(asked.topic).topic
        table = self._broker.tables.get(asked.table)
        operations = tuple(operation for operation in _OPERATIONS if operation in asked.operations)
        checked = check_route(asked.where, asked.partition_by, operations, table, self._limits, has_snapshot=asked.snapshot)
        route = Route(
            id=_NO_ID,
            topic=topic.id,
            topic_name=topic.name,
            table=table.id,
            table_name=table.name,
            changes=table.changes,
            operations=operations,
            where=None if asked.where is None else _text(asked.where),
            partition_by=tuple(map(_text, asked.partition_by)),
            payload=asked.payload,
            snapshot=asked.snapshot,
            sql=compile_for_spark(checked, table, self._limits),
        )
        return route, checked, table

    async def _newest_changes(self, table: Table) -> list[ChangeEvent]:
        limits = self._limits
        topic = CHANGES_PREFIX + table.name
        start = await self._broker.positions.resolve(topic, 0, StartEdge.EARLIEST)
        end = await self._broker.positions.resolve(topic, 0, StartEdge.LATEST)
        newest: deque[ChangeEvent] = deque()
        left = limits.explained_bytes
        # Rows that snapshots have read are skipped, so older changes may be read, up to the limit of bytes.
        while end > start and left > 0 and len(newest) < limits.explained_changes:
            begin = Offset(max(start, end - limits.explained_changes))
            records = await self._records(topic, begin, end, left)
            for record in reversed(records):
                left -= len(record.value or b"")
                change = read_change(record)
                if (left < 0 and newest) or len(newest) == limits.explained_changes:
                    break
                if change.op != "read":
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

    async def _in_thread(self, checked: CheckedRoute, table: Table, changes: list[ChangeEvent]) -> "list[DryRunOutcome]":
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


def _row(route: Route, change: ChangeEvent, outcome: "DryRunOutcome", partitions: int) -> Sequence[object]:
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


def _summary(matches: Sequence[object]) -> str:
    matching, failing = matches.count("true"), matches.count("failed")
    columns = f"{matching:,} of {counted(len(matches), 'change')} match{'es' if matching == 1 else ''}"
    return columns + (f", {failing:,} fail{'s' if failing == 1 else ''}" if failing else "")


def _text(tree: exp.Expression) -> str:
    return tree.unnest().sql(dialect=Tailrace)


class DryRunOutcome(NamedTuple):
    """The outcome for one change. If it failed, the other fields have no meaning."""

    matches: bool | None
    failed: bool
    key_values: Sequence[KeyValue]


def dry_run(checked: CheckedRoute, table: Table, changes: Sequence[ChangeEvent], limits: Limits) -> list[DryRunOutcome]:
    """Return an outcome for each change. Takes up to `query_seconds`, so run it in a thread."""
    compiled = compile_route(checked.where, checked.keys, DUCKDB, limits)
    used = {column.name for part in (checked.where, *checked.keys) if part is not None for column in columns_of(part)}
    return _run(compiled, _arrow(changes, [column for column in table.columns if column.name in used]), limits)


def _run(compiled: CompiledRoute, changes: Any, limits: Limits) -> list[DryRunOutcome]:
    import duckdb

    connection = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{limits.query_bytes}B",
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    alarm = Timer(limits.query_seconds, connection.interrupt)
    alarm.daemon = True
    alarm.start()
    try:
        connection.register("changes", changes)
        columns = ", ".join([compiled.condition, compiled.failure, *compiled.keys])
        rows = connection.execute(f"SELECT {columns} FROM changes ORDER BY number").fetchall()  # noqa: S608  written by `compile`
    except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
        raise QueryLimitError(
            f"the dry run took more than {limits.query_seconds} s (query_seconds) or {limits.query_bytes} bytes (query_bytes);"
            " simplify the route"
        ) from error
    finally:
        alarm.cancel()
        connection.close()
    return [DryRunOutcome(matches, failed, keys) for matches, failed, *keys in rows]


def _arrow(changes: Sequence[ChangeEvent], columns: Sequence[Any]) -> Any:
    """Return the old and new rows of the changes as an Arrow table."""
    import pyarrow as pa

    arrays = {"number": pa.array(range(len(changes)), pa.int64())}
    if columns:
        image_type = pa.struct([(column.name, _arrow_type(column.type)) for column in columns])
        reads = [(column.name, _reader(column.type)) for column in columns]
        for name, images in (("old", [change.old for change in changes]), ("new", [change.new for change in changes])):
            arrays[name] = pa.array([_image(image, reads) for image in images], image_type)
    return pa.table(arrays)


def _image(image: bytes | None, reads: Sequence[tuple[str, Callable[[Any], object]]]) -> dict[str, object] | None:
    if image is None:
        return None
    try:
        row = _decode_row(image)
        return {name: _read(row[name], read) for name, read in reads}
    except (msgspec.MsgspecError, KeyError, ValueError, ArithmeticError) as error:
        raise CorruptionError(f"a change event does not match the columns of its table: {error!r}") from error


def _read(cell: msgspec.Raw, read: Callable[[Any], object]) -> object:
    value = msgspec.json.decode(cell)
    return None if value is None else read(value)


def _reader(type_: ColumnType) -> Callable[[Any], object]:
    match type_.kind:
        case "decimal":
            return Decimal
        case "bytes":
            return b64decode
        case "date":
            return date.fromisoformat
        case "timestamp":
            return lambda text: datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
        case "json":
            return lambda value: msgspec.json.encode(value).decode()
        case "list":
            read = _reader(type_.element or type_)
            return lambda items: [None if item is None else read(item) for item in items]
    return lambda value: value


def _arrow_type(type_: ColumnType) -> Any:
    import pyarrow as pa

    match type_.kind:
        case "decimal" if type_.precision is not None and type_.precision <= 38:
            return pa.decimal128(type_.precision, type_.scale or 0)
        case "list":
            return pa.list_(_arrow_type(type_.element or type_))
    return {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }.get(type_.kind, pa.string())
