"""Errors as `application/problem+json` (RFC 9457).

In addition to the standard members, each problem says whether the same request may succeed when sent again (`retriable`) and
whether it is known to have had no effect (`outcome`: `failed` or `unknown`). Attributes of an error, such as the bounds of a
partition, become members of the same name.
"""

import logging
import re
from http import HTTPStatus
from math import ceil

import msgspec

from tailrace.model.errors import MessageTooLargeError, Outcome, QuotaExceededError, TailraceError
from tailrace.model.limits import Limits

MEDIA_TYPE = "application/problem+json"
BEARER_CHALLENGE = 'Bearer realm="tailrace"'
"""How to authenticate, in an answer to a page, which must not make the browser itself ask for a password."""
PROBLEM_TYPE_PREFIX = "urn:tailrace:error:"

_STATUSES = frozenset(HTTPStatus)
_RETRIABLE = frozenset((HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE))
_RETRY_SECONDS = "1"
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_log = logging.getLogger("tailrace.http")


class RequestRefusedError(Exception):
    """A request that is rejected at the level of HTTP, with a status and a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem_name(error: type[TailraceError]) -> str:
    """Return the name of an error in URNs: `OffsetOutOfRangeError` is `offset-out-of-range`."""
    return _WORD_START.sub("-", error.__name__.removesuffix("Error")).lower()


def error_body(error: TailraceError) -> bytes:
    name = problem_name(type(error))
    body = {
        "type": PROBLEM_TYPE_PREFIX + name,
        "title": name.replace("-", " ").capitalize().replace("Sql", "SQL").replace(" sql", " SQL"),
        "status": error.http_status,
        "detail": str(error),
        "retriable": error.retriable,
        "outcome": error.outcome,
    }
    return msgspec.json.encode(body | {member: value for member, value in vars(error).items() if not member.startswith("_")})


def error_headers(error: TailraceError) -> dict[str, str]:
    """Return when the request may be sent again, for an error that will pass by itself, and how to authenticate."""
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": BEARER_CHALLENGE}
    if isinstance(error, QuotaExceededError):
        return {"retry-after": str(max(1, ceil(error.retry_after_seconds)))}
    return {"retry-after": _RETRY_SECONDS} if error.retriable and error.http_status == HTTPStatus.SERVICE_UNAVAILABLE else {}


def problem_body(status: int, detail: str, *, outcome: Outcome = "failed") -> bytes:
    """Encode an error at the level of HTTP, which has no error class."""
    phrase = HTTPStatus(status).phrase if status in _STATUSES else "Client Closed Request"
    retriable = status in _RETRIABLE
    return msgspec.json.encode(
        {"type": "about:blank", "title": phrase, "status": status, "detail": detail, "retriable": retriable, "outcome": outcome}
    )


def too_large(limits: Limits) -> MessageTooLargeError:
    return MessageTooLargeError(f"the body is larger than request_bytes ({limits.request_bytes}); send less in one request")


class UnexpectedErrors:
    """Counts and logs unexpected errors of requests. Clients learn nothing about the internals."""

    def __init__(self) -> None:
        self.count = 0

    def report(self, method: str, path: str, error: Exception) -> bytes:
        """Log an error and return the problem for the client."""
        self.count += 1
        _log.error("%s %s failed", method, path, exc_info=error)
        return problem_body(500, "unexpected internal error; the log of the server has the details", outcome="unknown")
