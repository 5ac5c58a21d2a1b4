"""Requests from the command line to a server, through the client's transport.

What fails is an error of the tree in `model/errors`: a refusal with the server's own message; `ServerUnreachableError` if
nothing took effect; an error with the outcome `unknown` if a request that could change something was not answered. Nothing is
sent twice.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec

from tailrace.cli.command_line import ServerLogin
from tailrace.cli.errors import CommandError, UsageError
from tailrace.client._sync.transport import Transport
from tailrace.client.config import ConnectionConfig
from tailrace.client.http11 import checked_url, without_userinfo
from tailrace.client.retry import is_transient
from tailrace.model.backoff import Backoff
from tailrace.model.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionLostError,
    ServerUnreachableError,
    TailraceError,
    TimeoutError,
    TlsError,
)

if TYPE_CHECKING:
    from tailrace.client.values import CopyResult

_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 60.0
_SQL_SECONDS = 600.0
_IDLE_SECONDS = 60.0
"""How long a stream may be silent: the server sends a keep-alive every 15 s."""
_PAGE_ITEMS = 1_000
_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 2.0

SqlParameters = Sequence[object] | Mapping[str, object]
_Response = TypeVar("_Response")


class ServerApi:
    """Keeps a connection to one server for several requests. Used as `with ServerApi(server) as api:`."""

    def __init__(self, server: ServerLogin, password: str | None = None) -> None:
        """`password` is that of the user of the server, if somebody was asked for it."""
        self._server = server
        self._password = password
        self.skips_corrupt = False
        """Whether SQL skips stored batches that can't be decoded."""
        self.was_reached = False
        """Whether the server has answered any request."""
        given = {**server.source.settings(), **({} if password is None else {"password": password})}
        config = ConnectionConfig(**given, request_timeout=timedelta(seconds=_REQUEST_SECONDS))
        self._transport = Transport(_full_url(server.url), config, connect_seconds=_CONNECT_SECONDS)
        self.url = self._transport.url

    def another(self) -> "ServerApi":
        """Return another connection to the same server, for another thread."""
        return ServerApi(self._server, self._password)

    def __enter__(self) -> "ServerApi":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def get(self, path: str, **query: str | int) -> Any:
        return self._decoded(self._send("GET", _with_query(path, query), is_read=True))

    def post(self, path: str, body: object) -> Any:
        return self._decoded(self._send("POST", path, body))

    def repeat(self, path: str, body: object, response_type: type[_Response], seconds: float = 0.0) -> _Response:
        """POST something that may be sent again without harm. The server may take this many seconds longer to answer."""
        response: _Response = self._decoded(self._send("POST", path, body, is_read=True, wait_seconds=seconds), response_type)
        return response

    def put(self, path: str, body: object) -> Any:
        return self._decoded(self._send("PUT", path, body))

    def patch(self, path: str, body: object) -> Any:
        return self._decoded(self._send("PATCH", path, body))

    def delete(self, path: str, **query: str | int) -> None:
        self._send("DELETE", _with_query(path, query))

    def pages(self, path: str, items: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """Yield all items of a list, which is fetched page by page."""
        after: str | int | None = None
        while True:
            page = self.get(path, limit=_PAGE_ITEMS, **query, **({} if after is None else {"after": after}))
            yield from page[items]
            after = page["next"]
            if after is None:
                return

    def sql(self, text: str, parameters: SqlParameters = ()) -> list[dict[str, Any]]:
        """Run statements and return the result of each."""
        body: dict[str, Any] = {"sql": text, "params": parameters or []}
        if self.skips_corrupt:
            body["corrupt_batches"] = "skip"
        answer = self._decoded(self._send("POST", "/api/sql", body, wait_seconds=_SQL_SECONDS - _REQUEST_SECONDS))
        results: list[dict[str, Any]] = answer.get("results", [answer])
        return results

    def query(self, text: str, parameters: SqlParameters = ()) -> list[list[Any]]:
        """Return the rows of a SELECT. Only for what changes nothing, however often it is sent."""
        answer: dict[str, Any] = self.repeat("/api/sql", {"sql": text, "params": parameters or []}, dict[str, Any])
        rows: list[list[Any]] = answer["rows"]
        return rows

    @contextmanager
    def sql_rows(self, text: str, parameters: SqlParameters, media_type: str) -> Iterator[Iterator[bytes]]:
        """Yield the rows of one query in this format, as they arrive, however many."""
        body = msgspec.json.encode({"sql": text, "params": parameters or []})
        with self._stream("POST", "/api/sql", body, {"accept": media_type}, _SQL_SECONDS) as chunks:
            yield _complete(chunks)

    def copy_into(self, table: str, source: Any, **options: Any) -> "CopyResult":
        """Copy a file into a table; the options are those of the SDK."""
        from tailrace.client._sync.copy import TableCopy

        # A copy waits for a server that is away for a while; one that was never there is told of at once.
        self.get("/health")
        with self._explained(is_read=False):
            return TableCopy(self._transport).copy_into(table, source, **options)

    def copy_out(self, source: str, target: Any, **options: Any) -> "CopyResult":
        """Copy a table or a query to a file; the options are those of the SDK."""
        from tailrace.client._sync.copy import TableCopy

        with self._explained(is_read=True):
            return TableCopy(self._transport).copy_out(source, target, **options)

    @contextmanager
    def stream(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """Yield the chunks of a response as they arrive."""
        with self._stream("GET", _with_query(path, query), None, headers, _IDLE_SECONDS) as chunks:
            yield chunks

    def _send(self, method: str, path: str, body: object = None, *, is_read: bool = False, wait_seconds: float = 0.0) -> bytes:
        encoded = None if body is None else msgspec.json.encode(body)
        with self._explained(is_read=is_read):
            response = self._transport.send_once(method, path, encoded, wait_seconds=wait_seconds)
        self.was_reached = True
        return response

    @contextmanager
    def _stream(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], idle_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        with (
            self._explained(is_read=True),
            self._transport.stream(method, path, body, headers=headers, idle_seconds=idle_seconds) as chunks,
        ):
            self.was_reached = True
            yield chunks

    @contextmanager
    def _explained(self, *, is_read: bool) -> Iterator[None]:
        """Turn errors of the connection into what they mean for a command. `is_read` is whether it could change nothing."""
        try:
            yield
        except ServerUnreachableError as error:
            raise ServerUnreachableError(
                f"no server at {self.url}: is `tailrace serve` running? --server URL or TAILRACE_SERVER names another address"
            ) from error
        except TlsError:
            raise
        except AuthenticationError as error:
            self.was_reached = True
            raise CommandError(
                f"{self.url} does not know who you are: {error}. Log in with --user and --password-file, or with --token-file"
                " (or set TAILRACE_USER and TAILRACE_PASSWORD, or TAILRACE_TOKEN)"
            ) from error
        except (ConnectionLostError, TimeoutError) as error:
            what = "did not answer in time" if isinstance(error, TimeoutError) else "closed the connection before it answered"
            if is_read:
                raise ServerUnreachableError(f"the server at {self.url} {what}") from error
            raise type(error)(
                f"the server at {self.url} {what}: the request may have taken effect; check before you try again"
            ) from error
        except TailraceError as error:
            # A gateway may answer that its server is busy. Every other undescribed error is of some other program.
            if type(error) is TailraceError and str(error).startswith("HTTP ") and not error.retriable:
                raise CommandError(f"{self.url} is not a Tailrace server: {str(error).partition(chr(10))[0]}") from error
            self.was_reached = True
            raise

    def _decoded(self, response: bytes, response_type: Any = Any) -> Any:
        try:
            return msgspec.json.decode(response, type=response_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.url} is not a Tailrace server of this version: invalid response: {error}") from error


class Reconnection:
    """Waits for a server that went away. If it was never reached, the address may be wrong, and that is an error at once."""

    def __init__(self, server: ServerApi, tell: Callable[[str], None]) -> None:
        self._server = server
        self._tell = tell
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)

    def succeeded(self) -> None:
        """Make the next pause short again."""
        self._backoff.reset()

    def after(self, error: TailraceError) -> None:
        """Return when it makes sense to try again; raise the error if it never does."""
        if not (self._server.was_reached and is_transient(error)):
            raise error
        self.wait(str(error))

    def wait(self, reason: str) -> None:
        """Return when the server answers again."""
        self._tell(f"{reason}; reconnecting")
        while True:
            time.sleep(self._backoff.next_pause())
            try:
                self._server.get("/health")
            except (TailraceError, CommandError):
                continue
            return


def _complete(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except (ConnectionLostError, TimeoutError) as error:
        raise CommandError(
            f"the response ended early, so the rows are not complete; the server's log may say why: {error.__cause__}"
        ) from error


def _full_url(url: str) -> str:
    try:
        return checked_url(url if "://" in url else f"http://{url}")
    except ConfigurationError as error:
        raise UsageError(f"the server {without_userinfo(url)!r} is not an address such as http://127.0.0.1:8080") from error


def _with_query(path: str, query: Mapping[str, str | int]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
