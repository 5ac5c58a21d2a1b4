"""Events of a subscription, from one connection to the next, without a gap and without one twice.

The place to go on is the id of the last thing that the server sent: an event or a sign of life. A connection that breaks, or a
server that says that it stops, is followed by another one, after a pause that grows. Refusals end it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tailrace.cli.display import note_corrupt
from tailrace.cli.failures import CommandError, RefusedError

if TYPE_CHECKING:
    from tailrace.cli.reconnecting import Reconnection
    from tailrace.cli.server_api import ServerApi

_LONGEST_EVENT = 64 * 1024 * 1024
_NOTHING_SEEN = -1


class Event(NamedTuple):
    kind: bytes
    """Empty for messages."""
    id: int | None
    data: bytes
    """Empty for signs of life."""


class EventStream:
    def __init__(
        self,
        server: "ServerApi",
        pattern: str,
        place: Mapping[str, str],
        reconnection: "Reconnection",
        *,
        skips_corrupt: bool = False,
    ) -> None:
        """`place` is where to begin, as `/api/subscribe` takes it."""
        self._server = server
        self._query = {"pattern": pattern, **place, **({"corrupt_batches": "skip"} if skips_corrupt else {})}
        self._reconnection = reconnection
        self.last_cursor: int | None = None
        """The last one that is behind us; `-1` at the beginning of an empty log."""

    def messages(self) -> Iterator[bytes]:
        while True:
            try:
                yield from self._connection()
            except CommandError as error:
                self._reconnection.after(error)
            else:
                self._reconnection.wait("the server ended the stream")

    def _connection(self) -> Iterator[bytes]:
        headers = {} if self.last_cursor is None else {"last-event-id": str(self.last_cursor)}
        with self._server.stream("/api/subscribe", self._query, headers) as pieces:
            for event in events(pieces):
                self._reconnection.succeeded()
                if event.kind == b"error":
                    raise RefusedError(msgspec.json.decode(event.data))
                if event.kind == b"corrupt":
                    note_corrupt(msgspec.json.decode(event.data))
                elif event.data:
                    yield event.data
                if event.id is not None:
                    self.last_cursor = event.id
                elif self.last_cursor is None:
                    # A first sign of life without an id: the log is empty, and everything that comes is new.
                    self.last_cursor = _NOTHING_SEEN


def events(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Server-Sent Events out of the pieces of a stream. An event that is not complete at the end is not one."""
    kind, number, data, has_lines = b"", None, list[bytes](), False
    for line in _lines(pieces):
        if not line:
            if has_lines:
                yield Event(kind, number, b"\n".join(data))
            kind, number, data, has_lines = b"", None, [], False
            continue
        has_lines = True
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
        elif name == b"id":
            number = int(value)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun, size = [], 0
            yield from whole
        begun.append(rest)
        size += len(rest)
        if size > _LONGEST_EVENT:
            raise CommandError(f"the server sent a line of more than {_LONGEST_EVENT:,} bytes; it is no Tailrace")
