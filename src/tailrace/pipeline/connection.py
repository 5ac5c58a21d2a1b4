"""Where the server is, and whom to trust for it: handed to every task, which makes a connection of its own of it."""

import http.client
import os
import random
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from tailrace.pipeline.errors import OptionError, RefusedError, ServerUnreachableError, UntrustedServerError
from tailrace.wire.batch_stream import FetchedPartitionPart, decode_fetched

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


RETRY_SECONDS = 60.0
_FIRST_CONTACT_SECONDS = 10.0
_REQUEST_SECONDS = 60
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_NO_ROOM = (429, 503, 507)


class TopicOffsets(NamedTuple):
    """Offsets of the partitions of some topics, as of one moment."""

    offsets: dict[str, list[int]]
    topic_ids: dict[str, int]
    max_batch_bytes: dict[str, int]
    """By topic, how large a batch may be."""
    uuids: dict[str, str]
    """By topic, which topic of that name it is: one that is made again has another."""
    max_key_bytes: int
    max_value_bytes: int


class ServerConnection:
    """Not for several threads. Opened when the first request is sent."""

    def __init__(
        self, server: ServerAddress, patience_seconds: float = RETRY_SECONDS, stopping: threading.Event | None = None
    ) -> None:
        self._server = server.checked()
        self._patience = patience_seconds
        self._stopping = stopping or threading.Event()
        self._parent = os.getppid() if stopping is None else None
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "ServerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, question: object = None) -> Any:
        """A question and its answer, both JSON."""
        body = None if question is None else msgspec.json.encode(question)
        answer = self.send(method, path, body, "application/json")
        return msgspec.json.decode(answer) if answer else None

    def offsets(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        at: str | int = "latest",
        *,
        beyond: Mapping[str, list[int]] | None = None,
        wait_ms: int = 0,
    ) -> TopicOffsets:
        question = {"topics": list(topics), "pattern": pattern, "at": at, "beyond": beyond or {}, "wait_ms": wait_ms}
        found = self.ask("POST", "/api/batches/offsets", question)
        return TopicOffsets(
            {topic["topic"]: topic["partitions"] for topic in found["topics"]},
            {topic["topic"]: topic["topic_id"] for topic in found["topics"]},
            {topic["topic"]: topic["max_batch_bytes"] for topic in found["topics"]},
            {topic["topic"]: topic["topic_uuid"] for topic in found["topics"]},
            found["max_key_bytes"],
            found["max_value_bytes"],
        )

    def batches(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_uuid: str | None = None
    ) -> FetchedPartitionPart:
        """Stored batches from the one that holds the offset on. With a UUID, another topic of this name is refused."""
        position = {"partition_id": partition, "offset": offset}
        question = {"topic": topic, "topic_uuid": topic_uuid, "positions": [position], "max_bytes": max_bytes}
        (part,) = decode_fetched(self.send("POST", "/api/topics/fetch", msgspec.json.encode(question), "application/json"))
        return part

    def send(self, method: str, path: str, body: bytes | None = None, kind: str = "application/octet-stream") -> bytes:
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._attempt(method, path, body, kind)
            except (OSError, http.client.HTTPException, _NoRoomError) as error:
                self.close()
                untrusted = self._server.why_untrusted(error)
                if untrusted is not None:
                    raise untrusted from error
                # Not all tasks at the same moment.
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311
                if time.monotonic() + pause > deadline or self._stopping.wait(pause) or self._is_orphan():
                    raise ServerUnreachableError(
                        f"{self._server.url} did not take {method} {path} for {self._patience:g} s: {error}."
                        " Is `tailrace serve` running there?"
                    ) from error

    def _is_orphan(self) -> bool:
        return self._parent is not None and os.getppid() != self._parent

    def _attempt(self, method: str, path: str, body: bytes | None, kind: str) -> bytes:
        if self._connection is None:
            self._connection = self._server.connect(_REQUEST_SECONDS)
        self._connection.request(method, self._server.prefix + path, body, {"content-type": kind} if body is not None else {})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status < 300:
            return answer
        message, name = _problem(answer, response.reason)
        if response.status in _NO_ROOM:
            raise _NoRoomError(message)
        raise RefusedError(f"{self._server.url} refused {method} {path}: {message}", response.status, name)


def check_server(server: ServerAddress) -> None:
    """Raises, with what to do, where no server answers."""
    with ServerConnection(server, _FIRST_CONTACT_SECONDS) as connection:
        connection.ask("GET", "/health")


class _NoRoomError(Exception):
    """The server is there and can't do it now."""


def _problem(body: bytes, otherwise: str) -> tuple[str, str]:
    try:
        problem = msgspec.json.decode(body)
        return problem["detail"], problem["type"].rpartition(":")[2]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return otherwise, ""
