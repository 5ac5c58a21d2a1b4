"""Runs the statements of a request, and encodes their results as JSON in one body."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tailrace.api.messages import CorruptRange
from tailrace.api.sql import SqlBody, SqlColumn, SqlResponse
from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.disconnect import ASGIReceive, while_connected
from tailrace.http.responses import INLINE_BYTES
from tailrace.http.row_encoders import json_rows
from tailrace.model.errors import InvalidRequestError
from tailrace.sql.results import Result, ResultEncoder, ResultStream

if TYPE_CHECKING:
    from tailrace.sql.handlers.copy import CopiedRows

_INLINE_ROWS = 1_000

SqlParameters = Sequence[Any] | Mapping[str, Any]


class SqlExecutor(Protocol):
    """What HTTP needs of `sql.engine`."""

    async def execute(self, text: str, params: SqlParameters = (), answer: ReadAnswer | None = None) -> list[Result]: ...
    def execute_at_once(self, text: str, params: SqlParameters) -> Result | None: ...
    async def stream(self, text: str, params: SqlParameters, encoder: ResultEncoder, answer: ReadAnswer) -> ResultStream: ...
    async def copy_rows(self, table: str, data: bytes, *, skip: bool) -> "CopiedRows": ...


class NoSqlExecutor:
    """Rejects statements, for servers without SQL in tests."""

    async def execute(self, text: str, params: SqlParameters = (), answer: ReadAnswer | None = None) -> list[Result]:
        raise InvalidRequestError("this server does not run SQL")

    def execute_at_once(self, text: str, params: SqlParameters) -> Result | None:
        return None

    async def stream(self, text: str, params: SqlParameters, encoder: ResultEncoder, answer: ReadAnswer) -> ResultStream:
        raise InvalidRequestError("this server does not run SQL")

    async def copy_rows(self, table: str, data: bytes, *, skip: bool) -> "CopiedRows":
        raise InvalidRequestError("this server does not run SQL")


async def run_statements(
    parsed: SqlBody, broker: Broker, engine: SqlExecutor, receive: ASGIReceive, answer: ReadAnswer
) -> bytes:
    """Run one or more statements and return the response. They are cancelled when the client disconnects."""
    results = await while_connected(receive, engine.execute(parsed.sql, parsed.params, answer))
    is_small = answer.used <= INLINE_BYTES and sum(len(result.rows) for result in results) <= _INLINE_ROWS
    return _encoded(results, answer) if is_small else await broker.threads.run(_encoded, results, answer)


def _encoded(results: Sequence[Result], answer: ReadAnswer) -> bytes:
    corrupt = [CorruptRange(*batch) for batch in answer.corrupt]
    encoded = [encode_result(result, corrupt) for result in results]
    return encoded[0] if len(encoded) == 1 else b'{"results":[' + b",".join(encoded) + b"]}"


def encode_result(result: Result, corrupt: Sequence[CorruptRange] = ()) -> bytes:
    """Return the response for one statement."""
    return msgspec.json.encode(
        SqlResponse(
            [SqlColumn(column.name, str(column.type)) for column in result.columns],
            json_rows(result.columns, result.rows),
            result.status,
            result.affected,
            result.cursor,
            result.truncated,
            list(corrupt),
        )
    )
