"""HTTP/1.1 without I/O: where a server is and whom to trust there, the bytes of a request, and responses out of received bytes.

The SDK, the pipeline and the command line all load this module, so it imports httpx and `urllib.request` only where an address
needs them: they take longer to load than everything else here.
"""

import os
import re
import ssl
import sys
from ipaddress import ip_address
from select import POLLIN, POLLOUT, poll
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

import httptools

from tailrace.model.errors import ConfigurationError, TlsError
from tailrace.model.limits import KIB, MIB
from tailrace.model.server_credentials import CERTIFICATE_VARIABLE, pinned_context

JSON = "application/json"
REQUEST_ID_HEADER = "tailrace-request"
"""Carries the id of a request. The server's response repeats it."""
MAX_WEBSOCKET_MESSAGE_BYTES = 64 * MIB
"""Limits one message of a subscription, which holds many events."""
READ_BYTES = 128 * KIB
"""Limits what one read takes from a connection."""
CLOSE_SECONDS = 2.0
"""Limits the closing handshake of a WebSocket."""

_REQUEST_ID = REQUEST_ID_HEADER.encode()
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))
_MAX_HEAD_BYTES = 64 * KIB
_HTTP_PORT = 80
_PATH_CHARACTERS = "/%:@!$&'()*+,;=-._~"
_USERINFO = re.compile("//.*@")
_PROXY_VARIABLES = frozenset(("http_proxy", "all_proxy"))


class NotConnectedError(ConnectionError):
    """No connection could be opened, so nothing was sent."""


class InvalidResponseError(ConnectionError):
    """What was received is not an HTTP response, or ends before the response is complete."""


class DirectAddress(NamedTuple):
    """The address of a server that is reached by a plain TCP connection."""

    host: str
    port: int
    host_header: bytes
    path_prefix: bytes


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Includes the query string."""
    request_id: str
    body: bytes | None
    content_type: str = JSON


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    request_id: str | None
    """Names the request that was answered, if the server is one that says it."""
    is_last: bool
    """Whether the server closes the connection after it."""


class ResponseReader:
    """Parses the bytes that one connection receives into responses."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._complete: HttpResponse | None = None
        self.has_surplus = False
        """Whether more was received than one response to one request."""
        self.on_message_begin()

    def feed(self, data: bytes | bytearray | memoryview) -> HttpResponse | None:
        """Return the response once it is complete."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise InvalidResponseError(f"invalid HTTP response: {error.__context__ or error}") from error
        return self._take()

    def feed_end(self) -> HttpResponse:
        """Return the response that the end of the connection completes: one that does not state its length."""
        if self._is_in_body and not self._has_length:
            self._finish(is_last=True)
        response = self._take()
        if response is None:
            raise InvalidResponseError("the server closed the connection before its response was complete")
        return response

    def on_message_begin(self) -> None:
        self.has_surplus = self._complete is not None
        self._parts: list[bytes] = []
        self._request_id: str | None = None
        self._head_bytes = 0
        self._has_length = False
        self._is_in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _MAX_HEAD_BYTES:
            raise ValueError(f"its headers are larger than {_MAX_HEAD_BYTES} bytes")
        name = name.lower()
        if name == _REQUEST_ID:
            self._request_id = value.decode("latin-1")
        elif name in _LENGTHS:
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # informational responses precede the final one
            self._finish(is_last=not self._parser.should_keep_alive())

    def _finish(self, *, is_last: bool) -> None:
        self._is_in_body = False
        if not self.has_surplus:
            self._complete = HttpResponse(self._parser.get_status_code(), b"".join(self._parts), self._request_id, is_last)
        self._parts = []

    def _take(self) -> HttpResponse | None:
        response, self._complete = self._complete, None
        return response


def encode_request(request: HttpRequest, address: DirectAddress, authorization: bytes = b"") -> bytes:
    """Encode head and body in one piece, so that a small request leaves in one packet.

    `authorization` is the header of this name as a whole line, or nothing.
    """
    method, path, request_id, body, content_type = request
    head = b"%b %b%b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\nuser-agent: tailrace-python\r\n%b%b: %b\r\n" % (
        method.encode(),
        address.path_prefix,
        path.encode(),
        address.host_header,
        authorization,
        _REQUEST_ID,
        request_id.encode(),
    )
    if body is None:
        return head + b"\r\n"
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (head, content_type.encode(), len(body), body)


def checked_url(url: str) -> str:
    """Return the address without a slash at its end. Raises `ConfigurationError` for one that no server can have."""
    parts = _split(url) if isinstance(url, str) else None
    if parts is None:
        raise ConfigurationError(f"url is {without_userinfo(str(url))!r}; allowed is an address such as http://127.0.0.1:8080")
    return urlunsplit(parts).rstrip("/")


def without_userinfo(url: str) -> str:
    """Return an address as it may be shown: without a name and a password."""
    return _USERINFO.sub("//", url)


def direct_address(url: str) -> DirectAddress | None:
    """Return where to connect. `None` for addresses that need httpx: with TLS, with a password, or behind a proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or "@" in parts.netloc or not host.isascii() or is_proxied(host):
        return None
    port = parts.port or _HTTP_PORT
    host_header = f"[{host}]" if ":" in host else host
    if port != _HTTP_PORT:
        host_header += f":{port}"
    return DirectAddress(host, port, host_header.encode(), quote(parts.path, _PATH_CHARACTERS).rstrip("/").encode())


def is_proxied(host: str) -> bool:
    """Return whether the environment names a proxy for `http://` and this host. Addresses of this machine have none."""
    if is_loopback(host) or (sys.platform == "linux" and _PROXY_VARIABLES.isdisjoint(name.lower() for name in os.environ)):
        return False
    from urllib.request import getproxies, proxy_bypass

    return not _PROXY_VARIABLES.isdisjoint(f"{scheme}_proxy" for scheme in getproxies()) and not proxy_bypass(host)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def tls_context(
    url: str, ca_file: str | None, certificate_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext | None:
    """Trust the authorities of this file, or else those of the environment. `None` for an address without TLS.

    A process that a server has started trusts the certificate of that server, and no other. `certificate_file` is shown to a
    server that asks for the certificate of its client.
    """
    if not url.startswith("https"):
        return None
    import httpx

    pinned = os.environ.get(CERTIFICATE_VARIABLE)
    try:
        if ca_file is not None:
            context = ssl.create_default_context(cafile=ca_file)
        else:
            context = httpx.create_ssl_context() if pinned is None else pinned_context(pinned)
    except (OSError, ValueError) as error:
        named = "SSL_CERT_FILE or SSL_CERT_DIR" if ca_file is None else f"ca_file is {ca_file!r}, which"
        raise ConfigurationError(f"{named} can't be read as PEM certificates: {error}") from error
    if certificate_file is not None:
        try:
            context.load_cert_chain(certificate_file, key_file, password=_no_password)
        except (OSError, ValueError) as error:
            files = certificate_file if key_file is None else f"{certificate_file} and {key_file}"
            raise ConfigurationError(f"the certificate in {files} can't be used: {error}") from error
    return context


def _no_password() -> str:
    raise ConfigurationError("the private key has a password; write it to a file without one (`openssl pkey`)")


_UNKNOWN_AUTHORITY = frozenset((18, 19, 20, 21))
"""OpenSSL's codes for a certificate whose authority is not trusted."""
_ADVICE = ". Name the file with its authority's certificate: as ca_file, or in SSL_CERT_FILE"
_CONNECTION_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The connection ended during the handshake, which says nothing about the server."""


def tls_error(url: str, error: BaseException) -> TlsError | None:
    """Return why TLS kept a connection from being opened. `None` if the cause was not TLS."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or isinstance(cause, _CONNECTION_ENDED):
        return None
    if _is_about_our_certificate(cause):
        return TlsError(
            f"{url} does not accept the certificate of this client, or wants one: {cause.reason}. Name the files with one of an"
            " authority that it trusts, as certificate_file and key_file"
        )
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return TlsError(f"TLS failed with {url}: {cause.reason or cause}. Is it an address for http://?")
    advice = _ADVICE if cause.verify_code in _UNKNOWN_AUTHORITY else ""
    return TlsError(f"the certificate of {url} is not trusted: {cause.verify_message.rstrip('.')}{advice}")


def certificate_error(url: str, error: BaseException) -> TlsError | None:
    """Return why the server has ended the connection, if it was for the certificate of this client.

    With TLS 1.3 a client learns of that when it reads the response. The request was not read by the server then.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return None if cause is None or not _is_about_our_certificate(cause) else tls_error(url, cause)


def _is_about_our_certificate(error: ssl.SSLError) -> bool:
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def is_readable(descriptor: int) -> bool:
    """Return whether a socket has received something that was not read yet, or its end."""
    polled = poll()
    polled.register(descriptor, POLLIN)
    return bool(polled.poll(0))


def wait_readable_or_writable(descriptor: int, seconds: float) -> bool:
    """Return whether there is something to read. If not, there is room to write, or the time is over."""
    polled = poll()
    polled.register(descriptor, POLLIN | POLLOUT)
    return any(events & ~POLLOUT for _, events in polled.poll(seconds * 1000))


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_valid and url.isprintable() and " " not in parts.netloc else None
