"""`POST /api/sql`: runs statements, and answers with their rows as JSON or as Arrow."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request, post
from litestar.di import NamedDependency
from litestar.params import RawBody, SkipValidation
from litestar.types import ASGIApp

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.consuming import CorruptBatches, CorruptRange
from tailrace.http.description import described
from tailrace.http.engine import Engine
from tailrace.http.guards import JSON
from tailrace.http.messages import read_body
from tailrace.http.patience import while_connected
from tailrace.http.rows import ARROW_TYPE, arrow_stream, json_rows
from tailrace.http.sending import INLINE_BYTES, HeldAnswer
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.sql.result import Result

_INLINE_ROWS = 1_000


class Sql(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    """One statement or several."""
    params: list[Any] | dict[str, Any] = []
    """For `?` a list, for `:name` an object; for one INSERT, UPDATE or DELETE also a list of lists, a run for each."""
    corrupt_batches: CorruptBatches = "report"
    """Whether a batch of a topic that can't be decoded is an error, or is left out of what SELECT and CONSUME answer."""


class ColumnAnswer(msgspec.Struct):
    name: str
    type: str


class SqlAnswer(msgspec.Struct, omit_defaults=True):
    columns: list[ColumnAnswer]
    rows: list[list[Any]]
    status: str
    """What was done, as in `INSERT 3`."""
    affected: int | None = None
    """Rows written, where the statement writes rows."""
    cursor: int | None = None
    """The place in the log of what was written."""
    truncated: bool = False
    """Whether there were more rows than `query_rows` allows, or more to consume than fits into one answer."""
    corrupt: list[CorruptRange] = []
    """Batches that can't be decoded and are left out, or that are in the way of what is consumed next."""


class SqlAnswers(msgspec.Struct):
    results: list[SqlAnswer]


@post(
    "/api/sql",
    status_code=200,
    tags=["sql"],
    opt=described(Sql, answer=(SqlAnswer, SqlAnswers), answer_types={ARROW_TYPE: bytes}),
)
async def sql(
    request: Request[Any, Any, Any],
    body: RawBody,
    broker: NamedDependency[Broker],
    engine: NamedDependency[SkipValidation[Engine]],
    limits: NamedDependency[Limits],
) -> ASGIApp:
    """Run one statement or several; cancelled when the client goes away."""
    asked = read_body(body, Sql)
    with broker.answers.answer(skips_corrupt=asked.corrupt_batches == "skip").until_sent() as answer:
        results = await while_connected(request.receive, engine.execute(asked.sql, asked.params, answer))
        if ARROW_TYPE in request.headers.get("accept", ""):
            if len(results) != 1:
                raise InvalidRequestError(f"Arrow holds the rows of one statement, not of {len(results)}; ask for JSON")
            return HeldAnswer(await broker.in_thread(arrow_stream, results[0]), ARROW_TYPE, answer, limits)
        is_small = answer.used <= INLINE_BYTES and sum(len(result.rows) for result in results) <= _INLINE_ROWS
        encoded = _encoded(results, answer) if is_small else await broker.in_thread(_encoded, results, answer)
        return HeldAnswer(encoded, JSON, answer, limits)


def _encoded(results: Sequence[Result], answer: ReadAnswer) -> bytes:
    corrupt = [CorruptRange(*batch) for batch in answer.corrupt]
    encoded = [_answer(result, corrupt) for result in results]
    return encoded[0] if len(encoded) == 1 else b'{"results":[' + b",".join(encoded) + b"]}"


def _answer(result: Result, corrupt: list[CorruptRange]) -> bytes:
    return msgspec.json.encode(
        SqlAnswer(
            [ColumnAnswer(column.name, str(column.type)) for column in result.columns],
            json_rows(result),
            result.status,
            result.affected,
            result.cursor,
            result.truncated,
            corrupt,
        )
    )
