"""Failures between client and server as errors of the tree in `model/errors`.

The server answers a refused request with `application/problem+json`, whose type names the class. Failures of the connection
have classes of their own, which tell what was never sent (`outcome` is `failed`) from what may have taken effect (`unknown`).
"""

import builtins
from http import HTTPStatus

import msgspec

from tailrace.client.http11 import NotConnectedError, certificate_error, tls_error
from tailrace.model import errors
from tailrace.model.errors import ConnectionLostError, Outcome, ServerUnreachableError, TailraceError, TimeoutError

BUSY = frozenset(
    (
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
        HTTPStatus.INSUFFICIENT_STORAGE,
    )
)
"""The statuses of a server that can't take a request now, and of a gateway whose server is gone. Trying again may help."""

_TYPE_PREFIX = "urn:tailrace:error:"
_STANDARD_MEMBERS = frozenset(("type", "title", "status", "detail"))
_SHOWN_CHARACTERS = 200


def error_from_response(status: int, body: bytes) -> TailraceError:
    """Return the error that a response of the server describes. Further members of the problem become attributes."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, object])
    except msgspec.DecodeError:
        problem = {}
    error_class = _class_of(str(problem.get("type", "")))
    detail = str(problem.get("detail", "")) or f"HTTP {status}: {body[:_SHOWN_CHARACTERS].decode(errors='replace')}"
    error = error_class.__new__(error_class, detail)
    error.args = (detail,)
    if problem:
        members = {name: value for name, value in problem.items() if name not in _STANDARD_MEMBERS}
    else:
        # The server always describes its errors, so this response is from something in between.
        outcome: Outcome = "unknown" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
        members = {"retriable": status in BUSY, "outcome": outcome}
    error.__dict__.update(members)
    return error


def error_from_exception(url: str, error: Exception) -> TailraceError:
    """Return the error that a failure of the connection stands for: an `OSError`, or an `httpx.HTTPError`."""
    detail = str(error) or type(error).__name__
    if _is_not_sent(error):
        return tls_error(url, error) or ServerUnreachableError(
            f"no server answers at {url}: {detail}. Is `tailrace serve` running there?"
        )
    refused = certificate_error(url, error)
    if refused is not None:
        return refused
    if _is_timeout(error):
        return TimeoutError(f"{url} did not answer in time: {detail}. The request may have taken effect")
    return ConnectionLostError(f"the connection to {url} broke: {detail}. The request may have taken effect")


def _is_not_sent(error: Exception) -> bool:
    if isinstance(error, OSError):
        return isinstance(error, NotConnectedError)
    import httpx

    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _is_timeout(error: Exception) -> bool:
    if isinstance(error, OSError):
        return isinstance(error, builtins.TimeoutError)
    import httpx

    return isinstance(error, httpx.TimeoutException)


def _class_of(problem_type: str) -> type[TailraceError]:
    """Return the class for a type: `urn:tailrace:error:offset-out-of-range` is `OffsetOutOfRangeError`.

    A newer server may name a class that is unknown here.
    """
    if problem_type.startswith(_TYPE_PREFIX):
        words = problem_type.removeprefix(_TYPE_PREFIX).split("-")
        found = getattr(errors, "".join(word.capitalize() for word in words) + "Error", None)
        if isinstance(found, type) and issubclass(found, TailraceError):
            return found
    return TailraceError
