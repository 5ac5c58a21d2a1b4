"""CONSUME, ACK and REDRIVE DEAD LETTERS OF, with their results as rows.

The condition of a REDRIVE is evaluated by DuckDB, as that of a SELECT; the broker publishes the chosen dead letters again.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.consume import AckRequest, ConsumedRecord, ConsumeRequest
from tailrace.model.errors import LimitExceededError, SqlError
from tailrace.model.limits import Limits
from tailrace.model.record import MESSAGE_ID_HEADER, Headers
from tailrace.model.table import ColumnType
from tailrace.model.text import text_or_hex
from tailrace.sql.grammar.selects import parse_condition
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.select.queries import QueryRunner
from tailrace.sql.statements import AckStatement, ConsumeStatement, Query, RedriveStatement

_TEXT = ColumnType("text")
_BIGINT = ColumnType("bigint")

CONSUMED = (
    ResultColumn("topic", _TEXT),
    ResultColumn("partition", ColumnType("integer")),
    ResultColumn("offset", _BIGINT),
    ResultColumn("cursor", _BIGINT),
    ResultColumn("message_id", _TEXT),
    ResultColumn("source_table", _TEXT),
    ResultColumn("op", _TEXT),
    ResultColumn("timestamp", ColumnType("timestamp")),
    ResultColumn("payload_mode", _TEXT),
    ResultColumn("key", _TEXT),
    ResultColumn("value", _TEXT),
    ResultColumn("headers", ColumnType("json")),
)
_ACKED = (
    ResultColumn("topic", _TEXT),
    ResultColumn("group_id", _TEXT),
    ResultColumn("partition", ColumnType("integer")),
    ResultColumn("acknowledged_offset", _BIGINT),
)
_LAST_TIMESTAMP_MS = 253_402_300_799_999


_REDRIVEN = (
    ResultColumn("topic", ColumnType("text")),
    ResultColumn("redriven", ColumnType("bigint")),
    ResultColumn("left_out", ColumnType("bigint")),
)


class ConsumeHandler:
    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._limits = limits

    async def consume(self, asked: ConsumeStatement, answer: ReadAnswer) -> Result:
        if asked.limit < 1:
            raise SqlError(f"LIMIT is {asked.limit}; it must be at least 1", asked.line, asked.column)
        if not 0 <= asked.wait_ms <= self._limits.fetch_wait_ms:
            raise LimitExceededError(
                f"WAIT is {asked.wait_ms} ms, but fetch_wait_ms allows at most {self._limits.fetch_wait_ms}; consume again"
                " instead"
            )
        answer.skips_corrupt = answer.skips_corrupt or asked.skips_corrupt
        consumed = await self._broker.consumers.consume(
            ConsumeRequest(
                topic=asked.topic,
                group=asked.group,
                partition=asked.partition,
                start=asked.start,
                limit=asked.limit,
                wait_ms=asked.wait_ms,
            ),
            answer,
        )
        rows = [_row(consumed.topic, found) for found in consumed.records]
        return Result(CONSUMED, rows, status=f"CONSUME {len(rows)}", truncated=answer.is_cut)

    async def ack(self, asked: AckStatement) -> Result:
        acked = await self._broker.consumers.ack(AckRequest(asked.topic, asked.group, asked.partition, asked.upto_offset))
        row = (acked.topic, acked.group, acked.partition, acked.acknowledged_offset)
        return Result(_ACKED, [row], status="ACK")


def _row(topic: str, found: ConsumedRecord) -> tuple[object, ...]:
    record = found.record
    headers = _headers(record.headers)
    return (
        topic,
        found.partition,
        record.offset,
        record.cursor,
        _first(headers, MESSAGE_ID_HEADER),
        _first(headers, "source_table"),
        _first(headers, "op"),
        _time(record.timestamp),
        _first(headers, "payload_mode"),
        text_or_hex(record.key),
        text_or_hex(record.value),
        headers,
    )


def _headers(headers: Headers) -> dict[str, object]:
    """Return the headers by name, with a list for a name that occurs more than once."""
    found: dict[str, object] = {}
    for name, value in headers:
        if name not in found:
            found[name] = text_or_hex(value)
        else:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else [before]), text_or_hex(value)]
    return found


def _first(headers: dict[str, object], name: str) -> object:
    found = headers.get(name)
    return found[0] if isinstance(found, list) else found


def _time(timestamp_ms: int) -> datetime | None:
    if not 0 <= timestamp_ms <= _LAST_TIMESTAMP_MS:
        return None
    seconds, ms = divmod(timestamp_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)


class RedriveHandler:
    def __init__(self, broker: Broker, queries: QueryRunner, limits: Limits) -> None:
        self._broker = broker
        self._queries = queries
        self._limits = limits

    async def redrive(self, asked: RedriveStatement) -> Result:
        if asked.limit is not None and asked.limit < 1:
            raise SqlError(f"LIMIT is {asked.limit}; it must be at least 1", asked.line, asked.column)
        redrives = self._broker.redrives
        letters = redrives.letters_of(asked.topic)
        places: Iterable[tuple[int, int]] = redrives.all_left(letters)
        truncated = False
        if asked.where is not None:
            answer = await self._queries.run(self._query(letters, asked, asked.where), ())
            places = ((int(str(partition)), int(str(offset))) for partition, offset in answer.rows)
            truncated = answer.truncated
        put_back, left_out = await redrives.redrive(asked.topic, places, asked.limit)
        topic = self._broker.topics.get(asked.topic).topic.name
        return Result(
            _REDRIVEN, [(topic, put_back, left_out)], status=f"REDRIVE {put_back}", affected=put_back, truncated=truncated
        )

    def _query(self, letters: LiveTopic, asked: RedriveStatement, where: str) -> Query:
        """Return a query for the partitions and offsets of the dead letters that match and were not redriven yet."""
        left = " OR ".join(
            f'("partition" = {number} AND "offset" >= {int(first)})'
            for number, first in enumerate(self._broker.redrives.first_left(letters))
        )
        name = '"' + letters.topic.name.replace('"', '""') + '"'
        head = f'SELECT "partition", "offset" FROM {name} WHERE ({left or "false"}) AND ('  # noqa: S608
        tail = ') ORDER BY "partition", "offset"'
        return parse_condition(head, where, tail, self._limits, asked.where_line, asked.where_column)
