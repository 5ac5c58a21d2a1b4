"""The one way from the command line to a server: HTTP requests, and what becomes of those that fail.

A refusal is `RefusedError`, with the server's own words. A server that can't be reached is `UnreachableError`. A request that
was sent and never answered is `UnknownOutcomeError` if it could have changed anything. Nothing is sent twice.
"""

import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import msgspec

from tailrace.cli.errors import CommandError, RefusedError, UnknownOutcomeError, UnreachableError, UsageError

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
_SQL_SECONDS = 600.0
_SILENCE_SECONDS = 60.0
"""A stream that is silent for so long is dead: the server gives a sign of life every 15 s."""
_PAGE = 1_000
_JSON = {"content-type": "application/json"}
_SHOWN = 200

Query = Mapping[str, str | int]
_Shape = TypeVar("_Shape")


class ServerApi:
    """`with ServerApi(url) as server:` keeps a connection for several requests."""

    def __init__(self, url: str) -> None:
        self.url = _normalized_url(url)
        self.skips_corrupt = False
        """Whether SQL goes on without stored batches that can't be decoded."""
        self.was_reached = False
        """Whether anything was ever answered."""
        self._client = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            # A proxy for the internet does not know this machine's own addresses.
            trust_env=not _is_loopback(httpx.URL(self.url).host),
            verify=httpx.create_ssl_context() if self.url.startswith("https") else True,
        )

    def __enter__(self) -> "ServerApi":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **query: str | int) -> Any:
        return self._decoded(self._answer("GET", path, query=query, is_read=True))

    def post(self, path: str, body: object) -> Any:
        return self._decoded(self._answer("POST", path, body))

    def repeat(self, path: str, body: object, shape: type[_Shape], seconds: float = 0.0) -> _Shape:
        """A POST that may be sent again without harm, and may take some seconds longer. The answer has a shape of its own."""
        answer = self._answer("POST", path, body, is_read=True, seconds=_ANSWER_SECONDS + seconds)
        found: _Shape = self._decoded(answer, shape)
        return found

    def put(self, path: str, body: object) -> Any:
        return self._decoded(self._answer("PUT", path, body))

    def patch(self, path: str, body: object) -> Any:
        return self._decoded(self._answer("PATCH", path, body))

    def delete(self, path: str, **query: str | int) -> None:
        self._answer("DELETE", path, query=query)

    def pages(self, path: str, items: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page."""
        after: str | int | None = None
        while True:
            page = self.get(path, limit=_PAGE, **query, **({} if after is None else {"after": after}))
            yield from page[items]
            after = page["next"]
            if after is None:
                return

    def sql(self, text: str, params: Sequence[object] | Mapping[str, object] = ()) -> list[dict[str, Any]]:
        """The result of each statement."""
        body: dict[str, Any] = {"sql": text, "params": params or []}
        if self.skips_corrupt:
            body["corrupt_batches"] = "skip"
        answer = self._decoded(self._answer("POST", "/api/sql", body, seconds=_SQL_SECONDS))
        results: list[dict[str, Any]] = answer.get("results", [answer])
        return results

    @contextmanager
    def sql_rows(
        self, text: str, params: Sequence[object] | Mapping[str, object], media_type: str
    ) -> Iterator[Iterator[bytes]]:
        """The rows of one query in another format than JSON, as they come in, however many."""
        timeout = httpx.Timeout(_SQL_SECONDS, connect=_CONNECT_SECONDS)
        body = msgspec.json.encode({"sql": text, "params": params or []})
        headers = {**_JSON, "accept": media_type}
        with (
            self._mapped("POST", is_read=True),
            self._client.stream("POST", "/api/sql", content=body, headers=headers, timeout=timeout) as response,
        ):
            self.was_reached = True
            if response.is_error:
                raise _refusal(self.url, response.status_code, response.read())
            yield _complete_answer(response)

    @contextmanager
    def stream(self, path: str, query: Query, headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """Pieces of an answer as they come in."""
        timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
        with (
            self._mapped("GET", is_read=True),
            self._client.stream("GET", path, params=query, headers=dict(headers), timeout=timeout) as response,
        ):
            self.was_reached = True
            if response.is_error:
                raise _refusal(self.url, response.status_code, response.read())
            yield response.iter_raw()

    def _answer(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Query | None = None,
        is_read: bool = False,
        seconds: float = _ANSWER_SECONDS,
    ) -> bytes:
        with self._mapped(method, is_read=is_read):
            response = self._client.request(
                method,
                path,
                content=None if body is None else msgspec.json.encode(body),
                headers=None if body is None else _JSON,
                params=query,
                timeout=httpx.Timeout(seconds, connect=_CONNECT_SECONDS),
            )
        self.was_reached = True
        if response.is_error:
            raise _refusal(self.url, response.status_code, response.content)
        return response.content

    def _decoded(self, answer: bytes, shape: Any = Any) -> Any:
        try:
            return msgspec.json.decode(answer, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.url} answers in a way that no Tailrace does: {error}") from error

    @contextmanager
    def _mapped(self, method: str, *, is_read: bool) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _unreachable(self.url, error) from error
        except httpx.TransportError as error:
            what = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "went away before it answered"
            if is_read:
                raise UnreachableError(f"the server at {self.url} {what}") from error
            raise UnknownOutcomeError(
                f"the server at {self.url} {what}: what was asked for may have taken effect or not; look before you try again"
            ) from error


def _complete_answer(response: httpx.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_raw()
    except httpx.TransportError as error:
        raise CommandError(
            "the answer was broken off, so what has come of it is not complete; the server's log says why, unless it was the"
            f" connection: {error}"
        ) from error


def _normalized_url(url: str) -> str:
    full = url if "://" in url else f"http://{url}"
    try:
        parsed = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise UsageError(f"the server {url!r} is not an address such as http://127.0.0.1:8080: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"the server {url!r} is not an address such as http://127.0.0.1:8080")
    return full.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _unreachable(url: str, error: httpx.TransportError) -> UnreachableError:
    if url.startswith("https"):
        # The SDK takes a while to load, and other addresses don't need it.
        from tailrace.client.http11 import tls_error

        untrusted = tls_error(url, error)
        if untrusted is not None:
            return UnreachableError(str(untrusted))
    return UnreachableError(
        f"no server at {url}: is `tailrace serve` running? --server URL or TAILRACE_SERVER names another address"
    )


def _refusal(url: str, status: int, body: bytes) -> CommandError:
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        shown = body[:_SHOWN].decode(errors="replace").splitlines()
        return CommandError(f"{url} answers {status} in a way that no Tailrace does: {shown[0] if shown else 'nothing'!r}")
    return RefusedError(problem)


_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class Reconnection:
    """Begins to be patient once the server has been reached: a wrong address is an error at once."""

    def __init__(self, server: "ServerApi", tell: Callable[[str], None]) -> None:
        self._server = server
        self._tell = tell
        self._pause = _FIRST_PAUSE_SECONDS

    def succeeded(self) -> None:
        """The next pause is short again."""
        self._pause = _FIRST_PAUSE_SECONDS

    def after(self, error: CommandError) -> None:
        """Returns when it makes sense to try again; raises the error if it never will."""
        is_passing = error.is_passing if isinstance(error, RefusedError) else isinstance(error, UnreachableError)
        if not (self._server.was_reached and is_passing):
            raise error
        self.wait(str(error))

    def wait(self, reason: str) -> None:
        self._tell(f"{reason}; connecting again")
        while True:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            try:
                self._server.get("/health")
            except CommandError:
                continue
            return
