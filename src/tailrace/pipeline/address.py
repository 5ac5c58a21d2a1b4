"""Where the server is, and whom to trust for it: handed to every task, which makes a connection of its own of it."""

import http.client
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from tailrace.pipeline.errors import OptionError, UntrustedServerError

_HTTP_PORT = 8080


class ServerAddress(NamedTuple):
    url: str
    ca_file: str | None = None
    """Of an `https://` server: certificates of the authorities that are trusted, as PEM, on the machine that reads it."""

    def checked(self) -> "ServerAddress":
        """Raises where it is no address."""
        parts = self._parts
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"the server {self.url!r} is not an address such as http://127.0.0.1:8080")
        return self

    @property
    def prefix(self) -> str:
        """What stands before every path, behind a server for several."""
        return self._parts.path.rstrip("/")

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """A connection that is made with its first request, each of which has so long."""
        parts = self._parts
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port or _HTTP_PORT, timeout=seconds)
        # Only where it is needed, because it takes its time and every task would wait for it.
        from tailrace.client.http11 import tls_context
        from tailrace.model.errors import ConfigurationError

        try:
            trust = tls_context(self.url, self.ca_file)
        except ConfigurationError as error:
            raise OptionError(str(error)) from error
        return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=trust)

    def why_untrusted(self, error: Exception) -> UntrustedServerError | None:
        """What kept a connection from being made, if it was TLS: to try again would change nothing."""
        if self._parts.scheme == "http":
            return None
        from tailrace.client.http11 import tls_error

        told = tls_error(self.url, error)
        return None if told is None else UntrustedServerError(str(told))

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url if "//" in self.url else f"http://{self.url}")
