"""What goes wrong between client and server, as errors of the one tree.

The server answers with `application/problem+json`, whose type names the class. What the connection does has classes of its
own: they tell apart what was never sent (`outcome` is `failed`) from what may have taken effect (`unknown`).
"""

import builtins
from http import HTTPStatus

import httpx
import msgspec

from tailrace.client.http11 import NotConnectedError, tls_error
from tailrace.model import errors
from tailrace.model.errors import ConnectionLostError, Outcome, ServerUnreachableError, TailraceError, TimeoutError

_TYPE_PREFIX = "urn:tailrace:error:"
_STANDARD = frozenset(("type", "title", "status", "detail"))
_SHOWN = 200
_NOT_SENT = (NotConnectedError, httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
BUSY = frozenset((HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT))
"""What a server says that can't take the connection, and what stands before one that is gone: come again."""
_RETRIABLE = "retriable"
_OUTCOME = "outcome"


def error_from_response(status: int, body: bytes) -> TailraceError:
    """The error that an answer of the server stands for. What an error carries comes along as attributes."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, object])
    except msgspec.DecodeError:
        problem = {}
    shape = _class_of(str(problem.get("type", "")))
    detail = str(problem.get("detail", "")) or f"HTTP {status}: {body[:_SHOWN].decode(errors='replace')}"
    error = shape.__new__(shape, detail)
    error.args = (detail,)
    members = {name: value for name, value in problem.items() if name not in _STANDARD}
    if not problem:
        # No server of ours wrote this: something stands between.
        unknown: Outcome = "unknown" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
        members = {_RETRIABLE: status in BUSY, _OUTCOME: unknown}
    error.__dict__.update(members)
    return error


def error_from_exception(url: str, error: Exception) -> TailraceError:
    """The error that a failure of the connection stands for."""
    told = str(error) or type(error).__name__
    if isinstance(error, _NOT_SENT):
        return tls_error(url, error) or ServerUnreachableError(
            f"no server answers at {url}: {told}. Is `tailrace serve` running there?"
        )
    if isinstance(error, httpx.TimeoutException | builtins.TimeoutError):
        return TimeoutError(f"{url} did not answer in time: {told}. The request may have taken effect")
    return ConnectionLostError(f"the connection to {url} broke: {told}. The request may have taken effect")


def _class_of(kind: str) -> type[TailraceError]:
    """`urn:tailrace:error:offset-out-of-range` -> `OffsetOutOfRangeError`. A newer server may know errors that we do not."""
    if kind.startswith(_TYPE_PREFIX):
        words = kind.removeprefix(_TYPE_PREFIX).split("-")
        found = getattr(errors, "".join(word.capitalize() for word in words) + "Error", None)
        if isinstance(found, type) and issubclass(found, TailraceError):
            return found
    return TailraceError
