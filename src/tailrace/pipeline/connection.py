"""The pipeline's connection to the server: of the driver, and of each of Spark's tasks.

Every request here may be sent again without harm, so transient errors are retried for a while: a restart of the server is a
pause, not a failure. A process that is about to stop gives up at once, and so does a worker of Spark whose parent has ended,
because nobody waits for its result.
"""

import os
import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from tailrace.api.consume import FetchBody, StartPosition
from tailrace.api.pipelines import OffsetsBody, OffsetsResponse
from tailrace.api.server import Health
from tailrace.client._sync.transport import Transport
from tailrace.client.config import ConnectionConfig
from tailrace.client.credentials import NO_CREDENTIALS, CredentialSource
from tailrace.client.http11 import JSON, checked_url, without_userinfo
from tailrace.client.retry import Attempts, is_transient
from tailrace.model.errors import ConfigurationError, ServerUnreachableError, TailraceError
from tailrace.model.fetch import StartEdge
from tailrace.pipeline.errors import OptionError
from tailrace.wire.batch_stream import FetchedPartitionPart, decode_fetched

T = TypeVar("T")

RETRY_SECONDS = 60.0
_FIRST_CONTACT_SECONDS = 10.0
_REQUEST_TIMEOUT = timedelta(seconds=60)
_HTTP_PORT = 8080


class ServerAddress(NamedTuple):
    """Where the server is, whom to trust there, and where to find what to log in with.

    Every task gets it and opens a connection of its own. No secret is in it, because Spark writes down what tasks get.
    """

    url: str
    ca_file: str | None = None
    """For an `https://` server: the PEM file of the trusted authorities, on the machine that connects."""
    login: CredentialSource = NO_CREDENTIALS
    """Variables and files on the machine that connects."""

    def checked(self) -> "ServerAddress":
        """Return the address itself. Raises `OptionError` if no server can have it."""
        try:
            checked_url(self.full_url)
        except (ConfigurationError, ValueError) as error:
            raise OptionError(
                f"the server {without_userinfo(self.url)!r} is not an address such as http://127.0.0.1:8080"
            ) from error
        return self

    @property
    def source(self) -> CredentialSource:
        return self.login if self.ca_file is None else msgspec.structs.replace(self.login, ca_file=self.ca_file)

    @property
    def full_url(self) -> str:
        """The URL with what may be left out: `http://`, and the port of a server without TLS."""
        url = self.url if "//" in self.url else f"http://{self.url}"
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.port is not None:
            return url
        return parts._replace(netloc=f"{parts.netloc}:{_HTTP_PORT}").geturl()


class TopicOffsets(NamedTuple):
    """Offsets of the partitions of some topics, as of one moment."""

    offsets: dict[str, list[int]]
    topic_ids: dict[str, int]
    max_batch_bytes: dict[str, int]
    """By topic, how large a batch may be."""
    uuids: dict[str, str]
    """By topic, which topic of that name it is: one that is created again has another."""
    max_key_bytes: int
    max_value_bytes: int


class ServerConnection:
    """Sends requests of one thread. Connects with the first request."""

    def __init__(
        self, server: ServerAddress, retry_seconds: float = RETRY_SECONDS, stopping: threading.Event | None = None
    ) -> None:
        self._server = server.checked()
        self._retry_seconds = retry_seconds
        self._config = ConnectionConfig(**server.source.settings(), request_timeout=_REQUEST_TIMEOUT)
        self._stopping = stopping or threading.Event()
        self._parent = os.getppid() if stopping is None else None
        self._transport: Transport | None = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def __enter__(self) -> "ServerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, path: str, body: msgspec.Struct, response_type: type[T]) -> T:
        """POST a body of `tailrace.api` as JSON and decode the JSON response."""
        response = self.send("POST", path, msgspec.json.encode(body), JSON)
        return msgspec.json.decode(response or b"null", type=response_type)

    def get(self, path: str, response_type: type[T]) -> T:
        """GET a path and decode the JSON response."""
        return msgspec.json.decode(self.send("GET", path), type=response_type)

    def offsets(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        at: str | int = "latest",
        *,
        beyond: Mapping[str, list[int]] | None = None,
        wait_ms: int = 0,
    ) -> TopicOffsets:
        """Return offsets of all partitions of these topics. Waits up to `wait_ms` for offsets that exceed `beyond`."""
        edge = StartEdge(at) if isinstance(at, str) else at
        body = OffsetsBody(list(topics), pattern, edge, dict(beyond or {}), wait_ms)
        found = self.ask("/api/batches/offsets", body, OffsetsResponse)
        return TopicOffsets(
            {topic.topic: topic.partitions for topic in found.topics},
            {topic.topic: topic.topic_id for topic in found.topics},
            {topic.topic: topic.max_batch_bytes for topic in found.topics},
            {topic.topic: str(topic.topic_uuid) for topic in found.topics},
            found.max_key_bytes,
            found.max_value_bytes,
        )

    def batches(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_uuid: str | None = None
    ) -> FetchedPartitionPart:
        """Return stored batches from the one that holds the offset. With a UUID, another topic of this name is refused."""
        uuid = None if topic_uuid is None else UUID(topic_uuid)
        body = FetchBody(topic, [StartPosition(partition, offset)], max_bytes, topic_uuid=uuid)
        (part,) = decode_fetched(self.send("POST", "/api/topics/fetch", msgspec.json.encode(body), JSON))
        return part

    def send(self, method: str, path: str, body: bytes | None = None, content_type: str = "application/octet-stream") -> bytes:
        """Send a body and return that of the response. Retries transient errors for as long as this connection may."""
        if self._transport is None:
            self._transport = Transport(self._server.full_url, self._config)
        attempts = Attempts(self._config, self._retry_seconds)
        while True:
            try:
                return self._transport.send_once(method, path, body, content_type=content_type)
            except TailraceError as error:
                if not is_transient(error):
                    raise
                seconds = attempts.pause_after(error)
                if seconds is None or self._stopping.wait(seconds) or self._is_orphan():
                    raise ServerUnreachableError(
                        f"{self._transport.url} did not take {method} {path} for {self._retry_seconds:g} s: {error}"
                    ) from error

    def _is_orphan(self) -> bool:
        return self._parent is not None and os.getppid() != self._parent


def check_server(server: ServerAddress) -> None:
    """Raise, with what to do, if no server answers."""
    with ServerConnection(server, _FIRST_CONTACT_SECONDS) as connection:
        connection.get("/health", Health)
