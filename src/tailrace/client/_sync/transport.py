# Generated from _async/transport.py by tools/generate_sync.py; change that file, then run it.

"""Requests to the server and their answers: JSON, or bytes, or an error of the tree. Transient errors are tried again.

Every request that goes through `ask` may be sent twice without harm: reads, commits of an offset, joins under a given id, and
publishes with a number. So a lost answer is no reason to give up. Where the second time must be told from the first, `send`
takes another question for it.
"""

import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Self, TypeVar

import httpx
import msgspec

from tailrace.client._sync.concurrency import pause
from tailrace.client._sync.connection import HttpConnection
from tailrace.client.config import ConnectionConfig
from tailrace.client.errors import BUSY, error_from_exception, error_from_response
from tailrace.client.http11 import (
    REQUEST_ID_HEADER,
    DirectAddress,
    HttpRequest,
    HttpResponse,
    checked_url,
    direct_address,
    encode_request,
    tls_context,
)
from tailrace.client.retry import Attempts
from tailrace.model.errors import ClientClosedError, ConnectionLostError, TailraceError

T = TypeVar("T")

_GOOD = range(200, 300)


class Transport:
    """What can be asked of one server, by however many at a time."""

    def __init__(self, url: str, config: ConnectionConfig) -> None:
        self.url = checked_url(url)
        self.config = config
        self._names = count(1)
        self._answers_have_names = False
        address = direct_address(self.url)
        self._lines = HttpxPool(self.url, tls_context(self.url, config.ca_file)) if address is None else FastPool(address)

    def close(self) -> None:
        self._lines.close()

    def ask(self, path: str, question: Any, shape: type[T], *, wait_seconds: float = 0.0, patience: float | None = None) -> T:
        """A question and its answer. Transient errors are tried again for `patience` seconds, or `api_timeout`."""
        answer = self.send("POST", path, question, wait_seconds=wait_seconds, patience=patience)
        return msgspec.json.decode(answer or b"null", type=shape)

    def look(self, path: str, shape: type[T]) -> T:
        """What is there."""
        return msgspec.json.decode(self.send("GET", path), type=shape)

    def send(
        self,
        method: str,
        path: str,
        question: Any = None,
        *,
        repeated: Any = None,
        wait_seconds: float = 0.0,
        patience: float | None = None,
    ) -> bytes:
        """The body of the answer. `wait_seconds` is what the server was asked to wait by the question itself.

        `repeated` is what to ask instead after an attempt that may have taken effect.
        """
        body = None if question is None else msgspec.json.encode(question)
        attempts = Attempts(self.config, patience)
        while True:
            try:
                return self.send_once(method, path, body, wait_seconds=wait_seconds)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise
                if repeated is not None and attempts.unknown:
                    body = msgspec.json.encode(repeated)
            pause(seconds)

    def send_once(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float = 0.0, most_seconds: float | None = None
    ) -> bytes:
        """The same without trying again, and within `most_seconds`, if they are given."""
        timeout = self.config.request_timeout.total_seconds() + wait_seconds
        timeout = timeout if most_seconds is None else min(timeout, most_seconds)
        request = HttpRequest(method, path, str(next(self._names)), body)
        try:
            answer = self._lines.exchange(request, timeout, partial(self._check_name, request.name))
        except (OSError, httpx.HTTPError) as error:
            raise error_from_exception(self.url, error) from error
        if answer.status not in _GOOD:
            raise error_from_response(answer.status, answer.body)
        return answer.body

    def _check_name(self, name: str, answer: HttpResponse) -> None:
        """Servers name the request that they answer; what stands between may not.

        Nor does a server that can't take the connection. To come again is all that such an answer can mean, whosever it is.
        """
        if answer.name == name:
            self._answers_have_names = True
        elif answer.name is None and answer.status in BUSY:
            return
        elif answer.name is not None or self._answers_have_names:
            # Whatever stands between has doubled something, and all further answers of this connection are others' too.
            raise ConnectionLostError(f"{self.url} answered another request than this one, which may have taken effect")


_MAX_IDLE = 8
_IDLE_SECONDS = 5.0
"""How long one is kept without a request: well below what servers and what stands between allow."""


class FastPool:
    """As many as there are requests at a time."""

    def __init__(self, address: DirectAddress) -> None:
        self._address = address
        self._idle: list[HttpConnection] = []
        """The last used is the next."""
        self._open: set[HttpConnection] = set()
        self._is_closed = False

    def exchange(self, request: HttpRequest, seconds: float, check: Callable[[HttpResponse], None]) -> HttpResponse:
        """The answer, within this time. If `check` does not like it, the connection is closed."""
        line = self._take() or self._connect(seconds)
        is_good = False
        try:
            answer = line.exchange(encode_request(request, self._address), seconds)
            check(answer)
            is_good = not answer.is_last
        finally:
            if is_good and not self._is_closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(line)
            else:
                self._drop(line)
        return answer

    def close(self) -> None:
        self._is_closed = True
        for line in list(self._open):
            self._drop(line)

    def _take(self) -> HttpConnection | None:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:
                break  # another thread was quicker
            if time.monotonic() - line.idle_since < _IDLE_SECONDS and line.is_usable:
                return line
            self._drop(line)
        return None

    def _connect(self, seconds: float) -> HttpConnection:
        if self._is_closed:
            raise ClientClosedError(f"the connection to {self._address.host} is closed")
        line = HttpConnection.open(self._address.host, self._address.port, seconds)
        self._open.add(line)
        return line

    def _drop(self, line: HttpConnection) -> None:
        self._open.discard(line)
        line.close()


_JSON = {"content-type": "application/json"}


class HttpxPool:
    def __init__(self, url: str, trust: ssl.SSLContext | None) -> None:
        self._http = httpx.Client(base_url=url, verify=trust or True)

    def exchange(self, request: HttpRequest, seconds: float, check: Callable[[HttpResponse], None]) -> HttpResponse:
        """The answer. If `check` does not like it, the connection is closed."""
        method, path, name, body = request
        headers = {REQUEST_ID_HEADER: name, **(_JSON if body is not None else {})}
        got = self._http.request(method, path, content=body, headers=headers, timeout=seconds)
        answer = HttpResponse(got.status_code, got.content, got.headers.get(REQUEST_ID_HEADER), False)
        is_good = False
        try:
            check(answer)
            is_good = True
        finally:
            if not is_good:
                got.extensions["network_stream"].close()
        return answer

    def close(self) -> None:
        self._http.close()


_log = logging.getLogger("tailrace.client")


class Closeable(ABC):
    @abstractmethod
    def close(self) -> None:
        """Finish what was begun, and let go of everything. Raises what went wrong with it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except TailraceError:
            # The first error is the one to be told.
            if kind is None:
                raise
            _log.exception("%s could not be closed cleanly", type(self).__name__)
