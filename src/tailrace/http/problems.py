"""Errors as `application/problem+json` (RFC 9457).

Beside the standard members, each problem says whether the same request may succeed when sent again (`retriable`) and whether
it is known to have had no effect (`outcome`: `failed` or `unknown`). What an error carries, such as the bounds of a
partition, comes along as members of the same name.
"""

import logging
import re
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ExceptionHandlersMap

from tailrace.model.errors import MessageTooLargeError, TailraceError
from tailrace.model.limits import Limits

PROBLEM_TYPE_PREFIX = "urn:tailrace:error:"

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_log = logging.getLogger("tailrace.http")


def problem_name(error: type[TailraceError]) -> str:
    """`OffsetOutOfRangeError` -> `offset-out-of-range`."""
    return _WORD_START.sub("-", error.__name__.removesuffix("Error")).lower()


def tailrace_problem(_: Request[Any, Any, Any], error: TailraceError) -> Response[bytes]:
    name = problem_name(type(error))
    members = {member: value for member, value in vars(error).items() if not member.startswith("_")}
    return _problem(
        error.http_status,
        PROBLEM_TYPE_PREFIX + name,
        name.replace("-", " ").capitalize(),
        str(error),
        retriable=error.retriable,
        outcome=error.outcome,
        **members,
    )


def http_problem(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework itself refuses."""
    status = HTTPStatus(error.status_code)
    detail = {
        HTTPStatus.NOT_FOUND: f"there is no {request.url.path}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.url.path} does not take {request.method}",
    }.get(status, error.detail)
    return _problem(status, "about:blank", status.phrase, detail, retriable=False, outcome="failed")


class UnexpectedErrors:
    """The top of every request: counts and logs what nobody foresaw, and tells the caller nothing of the inside."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        self.count += 1
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        detail = "the server failed in a way that nobody foresaw; its log says more"
        return _problem(500, "about:blank", "Internal Server Error", detail, retriable=False, outcome="unknown")


def exception_handlers(unexpected: UnexpectedErrors, limits: Limits) -> ExceptionHandlersMap:
    def too_large(request: Request[Any, Any, Any], _: RequestEntityTooLarge) -> Response[bytes]:
        message = f"the body is larger than request_bytes allows ({limits.request_bytes}); send less at once"
        return tailrace_problem(request, MessageTooLargeError(message))

    return {
        TailraceError: tailrace_problem,
        RequestEntityTooLarge: too_large,
        HTTPException: http_problem,
        Exception: unexpected,
    }


def _problem(status: int, kind: str, title: str, detail: str, **members: object) -> Response[bytes]:
    body = {"type": kind, "title": title, "status": status, "detail": detail, **members}
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/problem+json")
