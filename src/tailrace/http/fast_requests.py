"""Fast path of `fast_endpoints.py`: some statements go from the bytes of a request to those of its response.

Triggered by a `POST /api/sql` that arrives in one piece, between two requests of its connection, with the headers that clients
send and a Host that was accepted before, if its statement is a SELECT of one row by its key (`execute_at_once`). Everything
else is left to uvicorn and `fast_endpoints.py`. `tests/integration/http/test_fast_requests.py` holds the responses of both
equal.
"""

from collections.abc import Callable, Sequence

import msgspec

from tailrace.api.sql import SqlBody
from tailrace.http.connection import FAST_BEGIN, REQUEST_NAME
from tailrace.http.request_guard import RequestGuard
from tailrace.http.statements import SqlExecutor, encode_result
from tailrace.model.limits import KIB

_SMALL_BYTES = 16 * KIB
_END = b"\r\n\r\n"
_PLAIN: dict[bytes, Callable[[bytes], bool]] = {
    b"content-type": lambda value: value == b"application/json",
    b"accept": lambda value: value in (b"*/*", b"application/json"),
    b"connection": lambda value: value.lower() == b"keep-alive",
    b"accept-encoding": lambda _: True,
    b"user-agent": lambda _: True,
}
"""The headers that a request may have besides its length, its host and its name, and which values leave it on this path."""
_decode = msgspec.json.Decoder(SqlBody).decode

DefaultHeaders = Sequence[tuple[bytes, bytes]]


class FastRequests:
    def __init__(self, request_guard: RequestGuard, engine: SqlExecutor) -> None:
        self._request_guard = request_guard
        self._engine = engine

    def respond(self, data: bytes, default_headers: DefaultHeaders) -> bytes | None:
        """Return the response to a request that begins with `FAST_BEGIN`, or `None` if it has to take the general path."""
        head, end, body = data.partition(_END)
        if not end or len(data) > _SMALL_BYTES:
            return None
        name = self._checked(head, len(body))
        if name is None:
            return None
        try:
            asked = _decode(body)
        except msgspec.MsgspecError:
            return None
        result = self._engine.execute_at_once(asked.sql, asked.params)
        if result is None:
            return None
        answer = encode_result(result)
        headers = [*default_headers, *name, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        return b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (lines, answer)

    def _checked(self, head: bytes, body_bytes: int) -> Sequence[tuple[bytes, bytes]] | None:
        """Return the header that names the request, if there is one; `None` if the request has to take the general path."""
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
        return () if request_name is None else ((REQUEST_NAME, request_name),)
