"""`POST /api/sql`: runs statements, and answers with their rows as JSON or as Arrow."""

import asyncio
from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.di import NamedDependency
from litestar.params import RawBody, SkipValidation

from tailrace.http.description import described
from tailrace.http.engine import Engine
from tailrace.http.guards import JSON
from tailrace.http.messages import read_body
from tailrace.http.patience import while_connected
from tailrace.http.rows import ARROW_TYPE, arrow_stream, json_rows
from tailrace.model.errors import InvalidRequestError
from tailrace.sql.result import Result

_INLINE_ROWS = 1_000


class Sql(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    """One statement or several."""
    params: list[Any] | dict[str, Any] = []
    """For `?` a list, for `:name` an object; for one INSERT, UPDATE or DELETE also a list of lists, a run for each."""


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
    """Whether there were more rows than `query_rows` allows."""


class SqlAnswers(msgspec.Struct):
    results: list[SqlAnswer]


@post(
    "/api/sql",
    status_code=200,
    tags=["sql"],
    opt=described(Sql, answer=(SqlAnswer, SqlAnswers), answer_types={ARROW_TYPE: bytes}),
)
async def sql(
    request: Request[Any, Any, Any], body: RawBody, engine: NamedDependency[SkipValidation[Engine]]
) -> Response[bytes]:
    """Run one statement or several; cancelled when the client goes away."""
    asked = read_body(body, Sql)
    results = await while_connected(request.receive, engine.execute(asked.sql, asked.params))
    if ARROW_TYPE in request.headers.get("accept", ""):
        if len(results) != 1:
            raise InvalidRequestError(f"Arrow holds the rows of one statement, not of {len(results)}; ask for JSON")
        return Response(await asyncio.to_thread(arrow_stream, results[0]), media_type=ARROW_TYPE)
    encoded = [await _encode(result) for result in results]
    answer = encoded[0] if len(encoded) == 1 else b'{"results":[' + b",".join(encoded) + b"]}"
    return Response(answer, media_type=JSON)


async def _encode(result: Result) -> bytes:
    if len(result.rows) <= _INLINE_ROWS:
        return _answer(result)
    return await asyncio.to_thread(_answer, result)


def _answer(result: Result) -> bytes:
    return msgspec.json.encode(
        SqlAnswer(
            [ColumnAnswer(column.name, str(column.type)) for column in result.columns],
            json_rows(result),
            result.status,
            result.affected,
            result.cursor,
            result.truncated,
        )
    )
