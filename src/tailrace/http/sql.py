"""`POST /api/sql`: runs statements and returns their rows, as JSON or in parts as Arrow, CSV or JSON lines."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.di import NamedDependency
from litestar.params import RawBody, SkipValidation
from litestar.types import ASGIApp, Receive, Scope, Send

from tailrace.api.sql import SqlBody, SqlResponse, SqlResponses
from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.disconnect import until_disconnect, while_connected
from tailrace.http.login_watch import until_login_ends
from tailrace.http.openapi import describe_endpoint
from tailrace.http.request_guard import JSON
from tailrace.http.requests import read_body
from tailrace.http.responses import HeldResponse, abort_connection
from tailrace.http.row_encoders import ARROW_TYPE, CSV_TYPE, LINES_TYPE, encoder_for
from tailrace.http.statements import SqlExecutor, run_statements
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.sql.results import ResultStream

if TYPE_CHECKING:
    pass

_log = logging.getLogger("tailrace.http")
_INLINE_ROWS = 1_000


@post(
    "/api/sql",
    status_code=200,
    tags=["sql"],
    opt=describe_endpoint(
        SqlBody, response=(SqlResponse, SqlResponses), response_types={ARROW_TYPE: bytes, CSV_TYPE: str, LINES_TYPE: str}
    ),
)
async def sql(
    request: Request[Any, Any, Any],
    body: RawBody,
    broker: NamedDependency[Broker],
    engine: NamedDependency[SkipValidation[SqlExecutor]],
    limits: NamedDependency[Limits],
) -> ASGIApp:
    """Run one or more statements. They are cancelled when the client disconnects."""
    parsed = read_body(body, SqlBody)
    encoder = encoder_for(request.headers.get("accept", ""))
    if encoder is not None and parsed.corrupt_batches == "skip":
        raise InvalidRequestError(f"{encoder.media_type} can't report skipped batches; use JSON with corrupt_batches=skip")
    with broker.answers.answer(skips_corrupt=parsed.corrupt_batches == "skip").until_sent() as answer:
        if encoder is not None:
            # Loaded before the time limit of the query starts.
            await broker.threads.run(encoder.load)
            stream = await while_connected(request.receive, engine.stream(parsed.sql, parsed.params, encoder, answer))
            return _streamed(stream, encoder.media_type, answer, limits)
        return HeldResponse(await run_statements(parsed, broker, engine, request.receive, answer), JSON, answer, limits)


def _streamed(stream: ResultStream, media_type: str, held: ReadAnswer, limits: Limits) -> ASGIApp:
    """Send the parts as they are made. If the rest fails, abort the connection, so that no client takes it for complete."""

    async def send_parts(scope: Scope, receive: Receive, send: Send) -> None:
        head = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        try:
            async with until_disconnect(receive):
                with until_login_ends():
                    await send({"type": "http.response.start", "status": 200, "headers": head})
                    while part := await stream.take():
                        async with asyncio.timeout(limits.subscriber_stall_seconds):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:  # noqa: BLE001  only closing the connection can tell the client
            _log.warning(
                "a query response was aborted after %d rows: %s", stream.row_count, error or "the client did not read it"
            )
            abort_connection(scope)
        finally:
            stream.close()
            held.close()

    return send_parts
