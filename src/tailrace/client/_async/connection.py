"""Requests to the server and their answers: JSON, or bytes, or an error of the tree. Transient errors are tried again.

Every request that goes through `ask` may be sent twice without harm: reads, commits of an offset, joins under a given id, and
publishes with a number. So a lost answer is no reason to give up. Where the second time must be told from the first, `send`
takes another question for it.
"""

from itertools import count
from typing import Any, TypeVar

import httpx
import msgspec

from tailrace.client._async.concurrency import pause
from tailrace.client.attempts import Attempts
from tailrace.client.config import RetryConfig
from tailrace.client.errors import error_of_answer, error_of_connection
from tailrace.model.errors import ConfigurationError, ConnectionLostError, TailraceError

T = TypeVar("T")

_JSON = {"content-type": "application/json"}
_REQUEST_NAME = "tailrace-request"
_GOOD = range(200, 300)


class AsyncConnection:
    """Connections to one server, opened when they are needed and kept for the next request."""

    def __init__(self, url: str, config: RetryConfig) -> None:
        self.url = checked_url(url)
        self.config = config
        self._names = count(1)
        self._answers_have_names = False
        self._http = httpx.AsyncClient(base_url=self.url, timeout=config.request_timeout.total_seconds())

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(
        self, path: str, question: Any, shape: type[T], *, wait_seconds: float = 0.0, patience: float | None = None
    ) -> T:
        """A question and its answer. Transient errors are tried again for `patience` seconds, or `api_timeout`."""
        answer = await self.send("POST", path, question, wait_seconds=wait_seconds, patience=patience)
        return msgspec.json.decode(answer or b"null", type=shape)

    async def look(self, path: str, shape: type[T]) -> T:
        """What is there."""
        return msgspec.json.decode(await self.send("GET", path), type=shape)

    async def send(
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
                return await self.send_once(method, path, body, wait_seconds=wait_seconds)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise
                if repeated is not None and attempts.unknown:
                    body = msgspec.json.encode(repeated)
            await pause(seconds)

    async def send_once(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float = 0.0, most_seconds: float | None = None
    ) -> bytes:
        """The same without trying again, and within `most_seconds`, if they are given."""
        timeout = self.config.request_timeout.total_seconds() + wait_seconds
        timeout = timeout if most_seconds is None else min(timeout, most_seconds)
        try:
            name = str(next(self._names))
            headers = {_REQUEST_NAME: name, **(_JSON if body else {})}
            answer = await self._http.request(method, path, content=body, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise error_of_connection(self.url, error) from error
        await self._check_name(name, answer)
        if answer.status_code not in _GOOD:
            raise error_of_answer(answer.status_code, answer.content)
        return answer.content

    async def _check_name(self, name: str, answer: httpx.Response) -> None:
        """Servers name the request that they answer; what stands between may not."""
        answered = answer.headers.get(_REQUEST_NAME)
        if answered == name:
            self._answers_have_names = True
        elif answered is not None or self._answers_have_names:
            # Whatever stands between has doubled something, and all further answers of this connection are others' too.
            await answer.extensions["network_stream"].aclose()
            raise ConnectionLostError(f"{self.url} answered another request than this one, which may have taken effect")


def checked_url(url: str) -> str:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        parts = httpx.URL("")
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigurationError(f"url is {url!r}; allowed is an address such as http://127.0.0.1:8080")
    return str(parts).rstrip("/")
