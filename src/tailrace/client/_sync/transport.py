# Generated from _async/transport.py by tools/generate_sync.py; change that file, then run it.

"""Requests to one server: the response as JSON or bytes, or an error of the tree. The SDK, the pipeline and the CLI share it.

`send` retries transient errors, so it is only for requests that may be sent twice without harm: reads, commits of an offset,
joins under a given id, publishes with a number. Where the server must tell a repetition from the first time, `send` takes
another body for it. `send_once` and `stream` never send twice.

`FastPool` speaks HTTP/1.1 on plain sockets. `HttpxPool` does what takes more: TLS, proxies, streams.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from tailrace.client._sync.concurrency import pause
from tailrace.client._sync.connection import HttpConnection
from tailrace.client.config import ConnectionConfig
from tailrace.client.credentials import ServerAccess
from tailrace.client.errors import BUSY, error_from_exception, error_from_response
from tailrace.client.http11 import (
    JSON,
    REQUEST_ID_HEADER,
    DirectAddress,
    HttpRequest,
    HttpResponse,
    direct_address,
    encode_request,
    is_loopback,
)
from tailrace.client.retry import Attempts
from tailrace.model.errors import ClientClosedError, ConnectionLostError, TailraceError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_log = logging.getLogger("tailrace.client")

_SUCCESS = range(200, 300)
_MAX_IDLE = 8
_IDLE_SECONDS = 5.0
"""How long an idle connection is kept: less than servers and proxies keep it."""


class Transport:
    """Sends requests to one server, any number at a time. Opens connections when they are needed."""

    def __init__(self, url: str, config: ConnectionConfig | None = None, *, connect_seconds: float | None = None) -> None:
        """`connect_seconds` limits the opening of a connection, which otherwise has as long as the whole request."""
        self.config = config or ConnectionConfig()
        self.access = ServerAccess(url, self.config)
        self.url = self.access.url
        self._connect_seconds = connect_seconds
        self._request_ids = count(1)
        self._responses_have_ids = False
        address = direct_address(url)
        self._fast_pool = None if address is None else FastPool(address, connect_seconds, self.access.authorization)
        self._httpx_pool: HttpxPool | None = None if address is not None else self._make_httpx_pool()

    def close(self) -> None:
        for pool in (self._fast_pool, self._httpx_pool):
            if pool is not None:
                pool.close()

    def ask(
        self, path: str, body: Any, response_type: type[T], *, wait_seconds: float = 0.0, retry_seconds: float | None = None
    ) -> T:
        """POST a JSON body and decode the JSON response. Retries as `send` does."""
        response = self.send("POST", path, body, wait_seconds=wait_seconds, retry_seconds=retry_seconds)
        return msgspec.json.decode(response or b"null", type=response_type)

    def get(self, path: str, response_type: type[T]) -> T:
        """GET a path and decode the JSON response. Retries as `send` does."""
        return msgspec.json.decode(self.send("GET", path), type=response_type)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        repeated: Any = None,
        wait_seconds: float = 0.0,
        retry_seconds: float | None = None,
    ) -> bytes:
        """Send a JSON body and return that of the response. Retries transient errors for `retry_seconds` or `api_timeout`.

        `wait_seconds` is how long the request itself asks the server to wait. `repeated` replaces the body after an attempt
        that may have taken effect.
        """
        encoded = None if body is None else msgspec.json.encode(body)
        attempts = Attempts(self.config, retry_seconds)
        while True:
            try:
                return self.send_once(method, path, encoded, wait_seconds=wait_seconds)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise
                if repeated is not None and attempts.unknown:
                    encoded = msgspec.json.encode(repeated)
            pause(seconds)

    def send_once(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        wait_seconds: float = 0.0,
        max_seconds: float | None = None,
    ) -> bytes:
        """Send an encoded body once and return the body of the response, within `request_timeout` or `max_seconds`."""
        timeout = self.config.request_timeout.total_seconds() + wait_seconds
        timeout = timeout if max_seconds is None else min(timeout, max_seconds)
        request = HttpRequest(method, path, str(next(self._request_ids)), body, content_type)
        check = partial(self._check_request_id, request.request_id)
        try:
            if self._fast_pool is not None:
                response = self._fast_pool.exchange(request, timeout, check)
            else:
                response = self._general_pool().exchange(request, timeout, check)
        except TailraceError:
            raise  # those of httpx, of which one is an `OSError` too
        except OSError as error:
            raise error_from_exception(self.url, error) from error
        if response.status not in _SUCCESS:
            raise error_from_response(response.status, response.body)
        return response.body

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float,
    ) -> Iterator[Iterator[bytes]]:
        """Send a request once and yield the chunks of the response as they arrive.

        The chunks end only with a complete response. A connection that breaks, or is silent for `idle_seconds`, raises.
        """
        typed = {} if body is None else {"content-type": JSON}
        with self._general_pool().stream(method, path, body, {**typed, **(headers or {})}, idle_seconds) as chunks:
            yield chunks

    def _general_pool(self) -> "HttpxPool":
        if self._httpx_pool is None:
            self._httpx_pool = self._make_httpx_pool()
        return self._httpx_pool

    def _make_httpx_pool(self) -> "HttpxPool":
        return HttpxPool(self.access, self._connect_seconds)

    def _check_request_id(self, request_id: str, response: HttpResponse) -> None:
        """Raise if the response belongs to another request.

        A server repeats the id of the request; a gateway may not, nor does a server that can't take the connection. Whichever
        request such a busy response belongs to, all it can mean is to try again.
        """
        if response.request_id == request_id:
            self._responses_have_ids = True
        elif response.request_id is None and response.status in BUSY:
            return
        elif response.request_id is not None or self._responses_have_ids:
            # Something in between has doubled a message: all further responses of this connection belong to other requests.
            raise ConnectionLostError(f"{self.url} answered another request than this one, which may have taken effect")


class FastPool:
    """Keeps plain connections to one server: as many as there are requests at a time.

    Fast path of `HttpxPool`: used for `http://` addresses with no password in them and without a proxy. An exchange takes
    about a tenth of the CPU time. `test_the_fast_pool_gives_what_httpx_gives` holds both equal.
    """

    def __init__(self, address: DirectAddress, connect_seconds: float | None, authorization: str | None = None) -> None:
        self._address = address
        self._authorization = b"" if authorization is None else f"authorization: {authorization}\r\n".encode()
        self._connect_seconds = connect_seconds
        self._idle: list[HttpConnection] = []
        """The most recently used is the last, and is taken first."""
        self._open: set[HttpConnection] = set()
        self._is_closed = False

    def exchange(self, request: HttpRequest, seconds: float, check: Callable[[HttpResponse], None]) -> HttpResponse:
        """Return the response, within this time. Closes the connection if `check` raises."""
        connection = self._take() or self._connect(seconds)
        is_reusable = False
        try:
            response = connection.exchange(encode_request(request, self._address, self._authorization), seconds)
            check(response)
            is_reusable = not response.is_last
        finally:
            if is_reusable and not self._is_closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                self._drop(connection)
        return response

    def close(self) -> None:
        self._is_closed = True
        for connection in list(self._open):
            self._drop(connection)

    def _take(self) -> HttpConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break  # another thread took it
            if time.monotonic() - connection.idle_since < _IDLE_SECONDS and connection.is_usable:
                return connection
            self._drop(connection)
        return None

    def _connect(self, seconds: float) -> HttpConnection:
        if self._is_closed:
            raise ClientClosedError(f"the connection to {self._address.host} is closed")
        limit = seconds if self._connect_seconds is None else min(seconds, self._connect_seconds)
        connection = HttpConnection.open(self._address.host, self._address.port, limit)
        self._open.add(connection)
        return connection

    def _drop(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        connection.close()


class HttpxPool:
    """Sends requests through httpx, which does TLS, proxies and streamed responses."""

    def __init__(self, access: ServerAccess, connect_seconds: float | None) -> None:
        import httpx

        self._url = url = access.url
        self._connect_seconds = connect_seconds
        self._http = httpx.Client(
            base_url=url,
            headers=access.headers,
            verify=access.tls_context() or True,
            trust_env=not is_loopback(httpx.URL(url).host),
        )

    def exchange(self, request: HttpRequest, seconds: float, check: Callable[[HttpResponse], None]) -> HttpResponse:
        """Return the response. Closes the connection if `check` raises."""
        import httpx

        method, path, request_id, body, content_type = request
        headers = {REQUEST_ID_HEADER: request_id, **({} if body is None else {"content-type": content_type})}
        try:
            got = self._http.request(method, path, content=body, headers=headers, timeout=self._timeout(seconds))
        except httpx.HTTPError as error:
            raise error_from_exception(self._url, error) from error
        response = HttpResponse(got.status_code, got.content, got.headers.get(REQUEST_ID_HEADER), False)
        is_reusable = False
        try:
            check(response)
            is_reusable = True
        finally:
            if not is_reusable:
                got.extensions["network_stream"].close()
        return response

    @contextmanager
    def stream(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], idle_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        import httpx

        timeout = self._timeout(idle_seconds)
        try:
            with self._http.stream(method, path, content=body, headers=dict(headers), timeout=timeout) as response:
                if response.status_code not in _SUCCESS:
                    raise error_from_response(response.status_code, response.read())
                yield self._chunks(response)
        except httpx.HTTPError as error:
            raise error_from_exception(self._url, error) from error

    def close(self) -> None:
        self._http.close()

    def _chunks(self, response: "httpx.Response") -> Iterator[bytes]:
        import httpx

        try:
            for chunk in response.iter_raw():
                yield chunk
        except httpx.HTTPError as error:
            raise error_from_exception(self._url, error) from error

    def _timeout(self, seconds: float) -> "httpx.Timeout":
        import httpx

        return httpx.Timeout(seconds, connect=seconds if self._connect_seconds is None else self._connect_seconds)


class Closeable(ABC):
    """Closes itself at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Finish pending work and release everything. Raises what failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except TailraceError:
            # The error that ended the block is the one to raise.
            if kind is None:
                raise
            _log.exception("%s could not be closed cleanly", type(self).__name__)
