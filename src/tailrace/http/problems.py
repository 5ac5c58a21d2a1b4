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
from litestar.exceptions import HTTPException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ExceptionHandlersMap

from tailrace.model.errors import MessageTooLargeError, Outcome, TailraceError
from tailrace.model.limits import Limits

MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPE_PREFIX = "urn:tailrace:error:"

_STATUSES = frozenset(HTTPStatus)
_PASSING = frozenset((HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE))
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_log = logging.getLogger("tailrace.http")


def problem_name(error: type[TailraceError]) -> str:
    """`OffsetOutOfRangeError` -> `offset-out-of-range`."""
    return _WORD_START.sub("-", error.__name__.removesuffix("Error")).lower()


def tailrace_problem(_: Request[Any, Any, Any], error: TailraceError) -> Response[bytes]:
    return Response(error_body(error), status_code=error.http_status, media_type=MEDIA_TYPE)


def http_problem(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework itself refuses."""
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is no {request.url.path}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}"
    elif isinstance(error, ValidationException) and isinstance(error.extra, list):
        detail = "; ".join(f"{fault.get('key')}: {fault.get('message')}" for fault in error.extra if isinstance(fault, dict))
    body = problem_body(error.status_code, detail)
    return Response(body, status_code=error.status_code, media_type=MEDIA_TYPE, headers=error.headers)


def error_body(error: TailraceError) -> bytes:
    name = problem_name(type(error))
    body = {
        "type": PROBLEM_TYPE_PREFIX + name,
        "title": name.replace("-", " ").capitalize(),
        "status": error.http_status,
        "detail": str(error),
        "retriable": error.retriable,
        "outcome": error.outcome,
    }
    return msgspec.json.encode(body | {member: value for member, value in vars(error).items() if not member.startswith("_")})


def problem_body(status: int, detail: str, *, outcome: Outcome = "failed") -> bytes:
    """A problem that is no error of ours but one of HTTP."""
    phrase = HTTPStatus(status).phrase if status in _STATUSES else "Client Closed Request"
    retriable = status in _PASSING
    return msgspec.json.encode(
        {"type": "about:blank", "title": phrase, "status": status, "detail": detail, "retriable": retriable, "outcome": outcome}
    )


def too_large(limits: Limits) -> MessageTooLargeError:
    return MessageTooLargeError(f"the body is larger than request_bytes allows ({limits.request_bytes}); send less at once")


class UnexpectedErrors:
    """The top of every request: counts and logs what nobody foresaw, and tells the caller nothing of the inside."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        return Response(self.tell(request.method, request.url.path, error), status_code=500, media_type=MEDIA_TYPE)

    def tell(self, method: str, path: str, error: Exception) -> bytes:
        """The problem for the caller."""
        self.count += 1
        _log.error("%s %s failed", method, path, exc_info=error)
        return problem_body(500, "the server failed in a way that nobody foresaw; its log says more", outcome="unknown")


def exception_handlers(unexpected: UnexpectedErrors, limits: Limits) -> ExceptionHandlersMap:
    def refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
        return (
            unexpected(request, error)
            if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
            else http_problem(request, error)
        )

    def refused_body(request: Request[Any, Any, Any], _: RequestEntityTooLarge) -> Response[bytes]:
        return tailrace_problem(request, too_large(limits))

    return {
        TailraceError: tailrace_problem,
        RequestEntityTooLarge: refused_body,
        HTTPException: refused,
        Exception: unexpected,
    }
