"""One exchange of HTTP/1.1 without its I/O: the bytes of a request, and what the bytes of its answer say."""

from typing import NamedTuple
from urllib.request import getproxies, proxy_bypass

import httptools
import httpx

from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import KIB

REQUEST_NAME = "tailrace-request"
"""What a request is named by, and its answer too."""

_NAME = REQUEST_NAME.encode()
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))
_MOST_HEAD_BYTES = 64 * KIB
_HTTP_PORT = 80


class NotConnectedError(ConnectionError):
    """There is no connection, so nothing was sent."""


class BrokenAnswerError(ConnectionError):
    """What came is no answer, or not the whole of one."""


class Address(NamedTuple):
    """Of a server that is reached without anything between."""

    host: str
    port: int
    name: bytes
    """As requests have it."""
    prefix: bytes
    """What every path begins with."""


class Request(NamedTuple):
    method: str
    path: str
    name: str
    body: bytes | None


class Answer(NamedTuple):
    status: int
    body: bytes
    name: str | None
    """Of the request that it answers, if the server is one that says it."""
    is_last: bool
    """Of its connection."""


class AnswerReader:
    """Is fed with what comes by one connection, and gives answers."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._complete: Answer | None = None
        self.has_surplus = False
        """More has come than an answer to what was asked."""
        self.on_message_begin()

    def feed(self, data: bytes | bytearray | memoryview) -> Answer | None:
        """The answer, once all of it is there."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise BrokenAnswerError(f"what came is no answer by HTTP: {error.__context__ or error}") from error
        return self._take()

    def feed_end(self) -> Answer:
        """The connection has ended, and with it an answer that does not say how long it is."""
        if self._is_in_body and not self._has_length:
            self._finish(is_last=True)
        answer = self._take()
        if answer is None:
            raise BrokenAnswerError("the server closed it before its answer was complete")
        return answer

    def on_message_begin(self) -> None:
        self.has_surplus = self._complete is not None
        self._parts: list[bytes] = []
        self._name: str | None = None
        self._head_bytes = 0
        self._has_length = False
        self._is_in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _MOST_HEAD_BYTES:
            raise ValueError(f"its head is larger than {_MOST_HEAD_BYTES} bytes")
        name = name.lower()
        if name == _NAME:
            self._name = value.decode("latin-1")
        elif name in _LENGTHS:
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # those below come before the answer
            self._finish(is_last=not self._parser.should_keep_alive())

    def _finish(self, *, is_last: bool) -> None:
        self._is_in_body = False
        if not self.has_surplus:
            self._complete = Answer(self._parser.get_status_code(), b"".join(self._parts), self._name, is_last)
        self._parts = []

    def _take(self) -> Answer | None:
        answer, self._complete = self._complete, None
        return answer


def encode_request(request: Request, address: Address) -> bytes:
    """In one piece, so that it leaves in one packet if it fits."""
    method, path, name, body = request
    head = b"%b %b%b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\nuser-agent: tailrace-python\r\n%b: %b\r\n" % (
        method.encode(),
        address.prefix,
        path.encode(),
        address.name,
        _NAME,
        name.encode(),
    )
    if body is None:
        return head + b"\r\n"
    return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body)


def checked_url(url: str) -> str:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        parts = httpx.URL("")
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigurationError(f"url is {url!r}; allowed is an address such as http://127.0.0.1:8080")
    return str(parts).rstrip("/")


def direct_address(url: str) -> Address | None:
    """`None` where more is needed than a connection: for TLS, for a password, and where the environment names a proxy."""
    parts = httpx.URL(url)
    proxies = getproxies()
    is_proxied = ("http" in proxies or "all" in proxies) and not proxy_bypass(parts.host)
    if parts.scheme != "http" or parts.userinfo or is_proxied:
        return None
    return Address(parts.host, parts.port or _HTTP_PORT, parts.netloc, parts.raw_path.rstrip(b"/"))
