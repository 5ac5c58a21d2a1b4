"""Fast path of `fast_endpoints.py`: some statements go from the bytes of a request to those of its response.

Triggered by a `POST /api/sql` that arrives in one piece, between two requests of its connection, with the headers that clients
send and a Host that was accepted before, if its statement is a SELECT of one row by its key (`execute_at_once`). Where
authentication is demanded, the header Authorization must have been right before, and there must be no quotas. Everything else
is left to uvicorn and `fast_endpoints.py`. `tests/integration/http/test_fast_requests.py` holds the responses of both equal.
"""

from collections.abc import Callable, Sequence

import msgspec

from tailrace.api.sql import SqlBody
from tailrace.broker.security.principals import act_as, stop_acting
from tailrace.http.authentication import HttpAuthentication
from tailrace.http.connection import FAST_BEGIN, REQUEST_NAME
from tailrace.http.quotas import HttpQuotas
from tailrace.http.request_guard import RequestGuard
from tailrace.http.statements import SqlExecutor, encode_result
from tailrace.model.errors import ForbiddenError
from tailrace.model.limits import KIB
from tailrace.sql.results import Result

_SMALL_BYTES = 16 * KIB
_END = b"\r\n\r\n"
_PLAIN: dict[bytes, Callable[[bytes], bool]] = {
    b"content-type": lambda value: value == b"application/json",
    b"accept": lambda value: value in (b"*/*", b"application/json"),
    b"connection": lambda value: value.lower() == b"keep-alive",
    b"accept-encoding": lambda _: True,
    b"user-agent": lambda _: True,
    b"authorization": lambda _: True,
}
"""The headers that a request may have besides its length, its host and its name, and which values leave it on this path."""
_AUTHORIZATION = b"authorization"
_NAMED = b"\r\n%b: " % REQUEST_NAME
_SIZED = b"content-length: "
_decode = msgspec.json.Decoder(SqlBody).decode

DefaultHeaders = Sequence[tuple[bytes, bytes]]


class FastRequests:
    def __init__(
        self,
        request_guard: RequestGuard,
        engine: SqlExecutor,
        authentication: HttpAuthentication | None = None,
        quotas: HttpQuotas | None = None,
    ) -> None:
        self._quotas = quotas
        self._request_guard = request_guard
        self._engine = engine
        self._authentication = authentication
        self._known_head: tuple[bytes, bytes, bytes | None] = (b"", b"", None)
        """What the last head that was checked has around its variable parts, and the host that was good then."""
        self._known_authorization = b""
        """The header Authorization of that head."""
        self._default_headers: DefaultHeaders = ()
        self._response_head = b""

    def respond(self, data: bytes, default_headers: DefaultHeaders, host: str) -> bytes | None:
        """Return the response to a request that begins with `FAST_BEGIN`, or `None` if it has to take the general path.

        `host` is the address of the client.
        """
        head, end, body = data.partition(_END)
        if not end or len(data) > _SMALL_BYTES or (self._quotas is not None and self._quotas.is_on):
            return None
        checked = self._checked_head(head, len(body))
        if checked is None:
            return None
        name, authorization = checked
        try:
            asked = _decode(body)
        except msgspec.MsgspecError:
            return None
        result = self._execute(asked, authorization, host)
        if result is None:
            return None
        answer = encode_result(result)
        if default_headers is not self._default_headers:
            # They have the date, and are others each second.
            self._default_headers = default_headers
            self._response_head = b"HTTP/1.1 200 OK\r\n" + b"".join([b"%b: %b\r\n" % header for header in default_headers])
        named = b"%b: %b\r\n" % (REQUEST_NAME, name) if name else b""
        return b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            self._response_head,
            named,
            len(answer),
            answer,
        )

    def _execute(self, asked: SqlBody, authorization: bytes, host: str) -> Result | None:
        if self._authentication is None:
            return self._engine.execute_at_once(asked.sql, asked.params)
        principal = self._authentication.remembered(authorization, host)
        if principal is None:
            return None
        # Connections call this in any context, so it is left as it was.
        before = act_as(principal)
        try:
            return self._engine.execute_at_once(asked.sql, asked.params)
        except ForbiddenError:
            return None
        finally:
            stop_acting(before)

    def _checked_head(self, head: bytes, body_bytes: int) -> tuple[bytes, bytes] | None:
        """Return the name of the request and its header Authorization, which may be empty; `None` if the request has to take
        the general path.

        The heads of a client differ only in their names and lengths, so what is around them is checked once.
        """
        before, _, rest = head.partition(_NAMED)
        name, _, rest = rest.partition(b"\r\n")
        between, _, length = rest.rpartition(_SIZED)
        around = (before, between, self._request_guard.good_host)
        if around == self._known_head and length == b"%d" % body_bytes and name.isalnum():
            return name, self._known_authorization
        checked = self._checked(head, body_bytes)
        if checked is not None and name and checked[0] == name and length == b"%d" % body_bytes:
            self._known_head = around
            self._known_authorization = checked[1]
        return checked

    def _checked(self, head: bytes, body_bytes: int) -> tuple[bytes, bytes] | None:
        """Check every header. Returns what `_checked_head` returns."""
        breaks = head.count(b"\r\n")
        if b"\0" in head or head.count(b"\n") != breaks or head.count(b"\r") != breaks:
            return None
        found: dict[bytes, bytes] = {}
        for line in head[len(FAST_BEGIN) :].split(b"\r\n"):
            name, _, value = line.partition(b":")
            name = name.lower()
            if name in found:
                return None
            found[name] = value.strip(b" ")
        if found.pop(b"content-length", b"") != b"%d" % body_bytes or b"content-type" not in found:
            return None
        if found.pop(b"host", None) != self._request_guard.good_host:
            return None
        request_name = found.pop(REQUEST_NAME, None)
        if request_name is not None and not request_name.isalnum():
            return None
        for name, value in found.items():
            check = _PLAIN.get(name)
            if check is None or not check(value):
                return None
        return request_name or b"", found.get(_AUTHORIZATION, b"")
