"""INSERT INTO a topic.

Each row for a topic is a message, and all rows of a statement are published together. The columns are `key`, `value`,
`headers`, `partition`, `timestamp` and `message_id`. Strings and bytes are published as they are, other values as JSON.
`headers` is a JSON object, with a list for a header that occurs more than once.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from tailrace.broker.broker import Broker
from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.record import Headers, Message, Published
from tailrace.model.text import counted
from tailrace.sql.grammar.writes import constant_of, kinds_in, plain_rows, query_of_insert
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, in_order, is_many
from tailrace.sql.results import Result
from tailrace.sql.select.queries import QueryRunner
from tailrace.sql.statements import Write

COLUMNS = ("key", "value", "headers", "partition", "timestamp", "message_id")


class TopicInsertHandler:
    def __init__(self, broker: Broker, queries: QueryRunner) -> None:
        self._broker = broker
        self._queries = queries

    async def insert(self, write: Write, params: Parameters) -> Result:
        return result_of(await self._broker.publisher.publish(await self.messages(write, params)))

    async def messages(self, write: Write, params: Parameters, *, in_transaction: bool = False) -> list[Message]:
        """Return the messages of an INSERT, with their values checked."""
        _check_shape(write)
        columns = _columns(write)
        rows = await self._rows(write, params, in_transaction)
        live = self._broker.topics.find_folded(write.target) or self._broker.topics.get(write.target)
        topic = live.topic.name
        return [_message(topic, columns, row, number) for number, row in enumerate(rows, 1)]

    async def _rows(self, write: Write, params: Parameters, in_transaction: bool) -> list[Sequence[object]]:
        fields = write.tree["InsertStmt"]
        cells = plain_rows(fields)
        if cells is not None:
            given = params if is_many(params, write) and not isinstance(params, Mapping) else [params]
            rows: list[Sequence[object]] = []
            for values in given:
                listed = in_order(write, values) if isinstance(values, Mapping | Sequence) else ()
                rows += [[_value(cell, listed, write) for cell in row] for row in cells]
            return rows
        if is_many(params, write):
            raise SqlError("many rows of parameters can only be used with VALUES of plain values", write.line, write.column)
        if "selectStmt" not in fields:
            raise UnsupportedSqlError("the INSERT has no VALUES and no query", write.line, write.column)
        query = query_of_insert(write)
        if in_transaction and not {"RangeVar", "RangeFunction"}.isdisjoint(kinds_in(query.tree)):
            # The query would run before the transaction and not see what it has written.
            raise UnsupportedSqlError(
                "within a transaction only VALUES can be inserted into a topic; run the query outside of the transaction",
                write.line,
                write.column,
            )
        answer = await self._queries.run(query, params if write.parameters else NO_PARAMETERS)
        if answer.truncated:
            raise SqlError("the query returns more rows than query_rows allows; insert them in parts", write.line, write.column)
        return list(answer.rows)


def result_of(published: Sequence[Published]) -> Result:
    """Return the result of an INSERT into a topic. Duplicates are not counted as inserted."""
    duplicates = sum(one.duplicate for one in published)
    new = len(published) - duplicates
    cursors = [one.cursor for one in published if one.cursor is not None]
    return Result(
        status=f"INSERT {new}" + (f", {counted(duplicates, 'duplicate')} left out" if duplicates else ""),
        affected=new,
        cursor=min(cursors, default=None),
    )


def _check_shape(write: Write) -> None:
    if write.kind != "insert":
        raise UnsupportedSqlError(
            f"{write.target!r} is a topic, whose records can't be changed; {write.kind.upper()} is for tables. CLEAR TOPIC"
            " deletes all records",
            write.line,
            write.column,
        )
    fields = write.tree["InsertStmt"]
    for clause, what in (("onConflictClause", "ON CONFLICT"), ("returningList", "RETURNING")):
        if fields.get(clause):
            raise UnsupportedSqlError(f"{what} can't be used with a topic", write.line, write.column)
    if "selectStmt" not in fields:
        raise UnsupportedSqlError("DEFAULT VALUES can't be used with a topic", write.line, write.column)


def _columns(write: Write) -> list[str]:
    named = [one["ResTarget"] for one in write.tree["InsertStmt"].get("cols", ())]
    names = [one["name"].lower() for one in named]
    if not names:
        raise SqlError(
            f"the INSERT does not name columns of topic {write.target!r}; write INSERT INTO {write.target} (key, value) ..."
            f" with any of {', '.join(COLUMNS)}",
            write.line,
            write.column,
        )
    for column, name in zip(named, names, strict=True):
        position = write.position_of(column.get("location", -1))
        if name not in COLUMNS:
            raise SqlError(f"a topic has no column {name!r}; use {', '.join(COLUMNS)}", *position)
        if names.count(name) > 1:
            raise SqlError(f"column {name!r} is named twice; name it once", *position)
    if "value" not in names:
        raise SqlError("the column value is missing; add it, with NULL to publish a tombstone", write.line, write.column)
    return names


def _value(cell: Mapping[str, Any], given: Sequence[object], write: Write) -> object:
    if "ParamRef" in cell:
        return given[cell["ParamRef"]["number"] - 1]
    if "SetToDefault" in cell:
        raise UnsupportedSqlError(
            "DEFAULT can't be used with a topic; leave the column out", *write.position_of(cell["SetToDefault"]["location"])
        )
    return constant_of(cell)


def _message(topic: str, columns: Sequence[str], row: Sequence[object], number: int) -> Message:
    if len(row) != len(columns):
        raise SqlError(f"row {number} has {counted(len(row), 'value')}, but the INSERT names {counted(len(columns), 'column')}")
    cells = dict(zip(columns, row, strict=True))
    partition = cells.get("partition")
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int)):
        raise SqlError(f"row {number}: partition is {partition!r}; it must be a whole number")
    message_id = cells.get("message_id")
    return Message(
        topic=topic,
        key=_bytes(cells.get("key"), "key", number),
        value=_bytes(cells.get("value"), "value", number),
        headers=_headers(cells.get("headers"), number),
        partition=partition,
        timestamp=_timestamp(cells.get("timestamp"), number),
        message_id=None if message_id is None else str(message_id),
    )


def _bytes(value: object, column: str, number: int) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise SqlError(f"row {number}: {column} is not valid Unicode; send it as bytes") from None
    if isinstance(value, Decimal):
        return format(value, "f").encode()
    if isinstance(value, date | UUID):
        return str(value).encode()
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise SqlError(f"row {number}: {column} can't be written as JSON: {error}") from error


def _headers(value: object, number: int) -> Headers:
    if value is None:
        return ()
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise SqlError(f"row {number}: headers are not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise SqlError(f'row {number}: headers must be a JSON object such as {{"name": "value"}}')
    headers: list[tuple[str, bytes | None]] = []
    for name, held in value.items():
        values = held if isinstance(held, list) else [held]
        headers += [(str(name), _bytes(one, f"header {name!r}", number)) for one in values]
    return headers


def _timestamp(value: object, number: int) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise SqlError(f"row {number}: timestamp {value!r} is not a time; write it like '2026-01-28T12:00:00Z'") from None
    if not isinstance(value, datetime):
        raise SqlError(f"row {number}: timestamp is {value!r}; it must be a time, or milliseconds since 1970")
    return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
