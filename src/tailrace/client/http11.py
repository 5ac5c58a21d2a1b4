"""One exchange of HTTP/1.1 without its I/O: the bytes of a request, and what the bytes of its answer say."""

import ssl
from select import POLLIN, POLLOUT, poll
from typing import NamedTuple
from urllib.request import getproxies, proxy_bypass

import httptools
import httpx

from tailrace.model.errors import ConfigurationError, TlsError
from tailrace.model.limits import KIB, MIB

REQUEST_ID_HEADER = "tailrace-request"
"""What a request is named by, and its answer too."""

_REQUEST_ID = REQUEST_ID_HEADER.encode()
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))
_MAX_HEAD_BYTES = 64 * KIB
_HTTP_PORT = 80


class NotConnectedError(ConnectionError):
    """There is no connection, so nothing was sent."""


class InvalidResponseError(ConnectionError):
    """What came is no answer, or not the whole of one."""


class DirectAddress(NamedTuple):
    """Of a server that is reached without anything between."""

    host: str
    port: int
    name: bytes
    """As requests have it."""
    prefix: bytes
    """What every path begins with."""


class HttpRequest(NamedTuple):
    method: str
    path: str
    name: str
    body: bytes | None


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    name: str | None
    """Of the request that it answers, if the server is one that says it."""
    is_last: bool
    """Of its connection."""


class ResponseReader:
    """Is fed with what comes by one connection, and gives answers."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._complete: HttpResponse | None = None
        self.has_surplus = False
        """More has come than an answer to what was asked."""
        self.on_message_begin()

    def feed(self, data: bytes | bytearray | memoryview) -> HttpResponse | None:
        """The answer, once all of it is there."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise InvalidResponseError(f"what came is no answer by HTTP: {error.__context__ or error}") from error
        return self._take()

    def feed_end(self) -> HttpResponse:
        """The connection has ended, and with it an answer that does not say how long it is."""
        if self._is_in_body and not self._has_length:
            self._finish(is_last=True)
        answer = self._take()
        if answer is None:
            raise InvalidResponseError("the server closed it before its answer was complete")
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
        if self._head_bytes > _MAX_HEAD_BYTES:
            raise ValueError(f"its head is larger than {_MAX_HEAD_BYTES} bytes")
        name = name.lower()
        if name == _REQUEST_ID:
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
            self._complete = HttpResponse(self._parser.get_status_code(), b"".join(self._parts), self._name, is_last)
        self._parts = []

    def _take(self) -> HttpResponse | None:
        answer, self._complete = self._complete, None
        return answer


def encode_request(request: HttpRequest, address: DirectAddress) -> bytes:
    """In one piece, so that it leaves in one packet if it fits."""
    method, path, name, body = request
    head = b"%b %b%b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\nuser-agent: tailrace-python\r\n%b: %b\r\n" % (
        method.encode(),
        address.prefix,
        path.encode(),
        address.name,
        _REQUEST_ID,
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


def direct_address(url: str) -> DirectAddress | None:
    """`None` where more is needed than a connection: for TLS, for a password, and where the environment names a proxy."""
    parts = httpx.URL(url)
    proxies = getproxies()
    is_proxied = ("http" in proxies or "all" in proxies) and not proxy_bypass(parts.host)
    if parts.scheme != "http" or parts.userinfo or is_proxied:
        return None
    return DirectAddress(parts.host, parts.port or _HTTP_PORT, parts.netloc, parts.raw_path.rstrip(b"/"))


MAX_WEBSOCKET_MESSAGE_BYTES = 64 * MIB
"""Of one message of a subscription, which holds many events."""
READ_BYTES = 128 * KIB
"""Taken from a connection at once, at most."""
CLOSE_SECONDS = 2.0
"""How long a goodbye may take."""


def is_readable(descriptor: int) -> bool:
    """Whether something has come by a socket, or its end, and is not taken yet."""
    looking = poll()
    looking.register(descriptor, POLLIN)
    return bool(looking.poll(0))


def wait_readable_or_writable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read; if not, there is room to write or the time is over."""
    looking = poll()
    looking.register(descriptor, POLLIN | POLLOUT)
    return any(happened & ~POLLOUT for _, happened in looking.poll(seconds * 1000))


_UNKNOWN_AUTHORITY = frozenset((18, 19, 20, 21))
"""OpenSSL's codes for a certificate whose authority is not among those that are trusted."""
_ADVICE = ". Name the file with its authority's certificate: as ca_file, or in SSL_CERT_FILE"
_CONNECTION_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The connection ended meanwhile, which says nothing about the server."""


def tls_context(url: str, ca_file: str | None) -> ssl.SSLContext | None:
    """Trusts the authorities of this file, or else those of the environment. `None` for an address without TLS."""
    if not url.startswith("https"):
        return None
    try:
        return httpx.create_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        named = "SSL_CERT_FILE or SSL_CERT_DIR" if ca_file is None else f"ca_file is {ca_file!r}, which"
        raise ConfigurationError(f"{named} can't be read as certificates in the form of PEM: {error}") from error


def tls_error(url: str, error: BaseException) -> TlsError | None:
    """What kept a connection from being made, if it was TLS."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or isinstance(cause, _CONNECTION_ENDED):
        return None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return TlsError(f"there is no TLS with {url}: {cause.reason or cause}. Is it an address for http://?")
    advice = _ADVICE if cause.verify_code in _UNKNOWN_AUTHORITY else ""
    return TlsError(f"the certificate of {url} is not trusted: {cause.verify_message.rstrip('.')}{advice}")
