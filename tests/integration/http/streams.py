"""Subscribers of a running server over both protocols, with one interface."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
from websockets.sync.client import connect

from tests.support.patience import PATIENCE_SECONDS

SECONDS = PATIENCE_SECONDS


class SseStream:
    """Yield the events of a response as they arrive, each with its id."""

    def __init__(self, response: httpx.Response) -> None:
        self.last_id: str | None = None
        self._lines = response.iter_lines()

    def take(self, count: int) -> list[dict[str, Any]]:
        return [self.next() for _ in range(count)]

    def next(self) -> dict[str, Any]:
        kind, event = self.next_of_any_kind()
        assert kind == "message", event
        return event

    def next_of_any_kind(self) -> tuple[str, dict[str, Any]]:
        kind, data = "message", []
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                kind = value
            elif field == "data":
                data.append(value)
            elif not line and data:
                return kind, dict(json.loads("\n".join(data)))
        raise AssertionError("the stream ended")


class SocketStream:
    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self._events: list[dict[str, Any]] = []

    def take(self, count: int) -> list[dict[str, Any]]:
        while len(self._events) < count:
            message = json.loads(self.socket.recv(timeout=SECONDS))
            if message["type"] == "events":
                self._events += message["events"]
        taken, self._events = self._events[:count], self._events[count:]
        return taken


Stream = SseStream | SocketStream


@contextmanager
def sse(url: str, pattern: str, headers: dict[str, str] | None = None, **fields: Any) -> Iterator[SseStream]:
    with httpx.stream(
        "GET", f"{url}/api/subscribe", params={"pattern": pattern, **fields}, headers=headers, timeout=SECONDS
    ) as response:
        assert response.status_code == 200, response.read()
        stream = SseStream(response)
        yield stream


@contextmanager
def socket(url: str, pattern: str, **fields: object) -> Iterator[SocketStream]:
    query = urlencode({"pattern": pattern, **fields})
    with connect(f"{url.replace('http', 'ws', 1)}/api/subscribe?{query}", open_timeout=SECONDS) as opened:
        yield SocketStream(opened)


@contextmanager
def subscribed(protocol: str, url: str, pattern: str, **fields: Any) -> Iterator[Stream]:
    with (sse if protocol == "sse" else socket)(url, pattern, **fields) as stream:
        yield stream
