"""`tailrace tail`: print what comes to all topics that match a pattern, as it comes."""

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from tailrace.cli.command_line import (
    DEFAULT_SERVER,
    FormatOption,
    JsonOption,
    LimitOption,
    MessageFormat,
    ServerOption,
    SkipCorruptOption,
)
from tailrace.cli.display import note_corrupt_batch
from tailrace.cli.errors import CommandError, RefusedError, UsageError

if TYPE_CHECKING:
    from tailrace.cli.server_api import Reconnection, ServerApi


def tail(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="A topic, orders.* for one part more, orders.> for all below, > for everything."
        ),
    ],
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="CURSOR", min=-1, help="The last cursor that was seen; goes on right after it."),
    ] = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="EDGE", help="Where to begin: beginning, or latest (the default).")
    ] = None,
    limit: LimitOption = None,
    shape: FormatOption = None,
    as_json: JsonOption = False,
    skip_corrupt: SkipCorruptOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print what comes to all topics that match a pattern, in the order of the log.

    Goes on by itself when the server was away, with nothing left out and
    nothing twice. Each message has its cursor, and Ctrl-C says where to go on.

    [bold]Examples[/]
    tailrace tail shop.orders
    tailrace tail 'shop.>' --cursor beginning
    tailrace tail '>' --after 4711 --json | jq .value
    """
    if after is not None and cursor is not None:
        raise UsageError("--after and --cursor both say where to begin; give one of them")
    if cursor is not None and cursor.isascii() and cursor.isdigit():
        raise UsageError(
            f"--cursor takes beginning or latest. --after {cursor} begins with the message behind that cursor,"
            f" --after {int(cursor) - 1} with the message itself"
        )
    import msgspec

    from tailrace.api.messages import ReadMessage
    from tailrace.cli.display import MessagePrinter, print_note
    from tailrace.cli.server_api import Reconnection, ServerApi

    printer = MessagePrinter(MessageFormat.JSON if as_json else shape, with_topic=True)
    decode = msgspec.json.Decoder(ReadMessage).decode
    printed = 0
    last_cursor: int | None = None
    with ServerApi(server) as api:
        place = {"cursor": cursor or "latest"} if after is None else {"after": str(after)}
        stream = EventStream(api, pattern, place, Reconnection(api, print_note), skips_corrupt=skip_corrupt)
        try:
            for data in stream.messages():
                message = decode(data)
                with _whole():
                    printer.show(message)
                    printer.flush()
                    last_cursor = message.cursor
                    printed += 1
                if printed == limit:
                    break
        except KeyboardInterrupt:
            if stream.last_cursor is not None:
                last_cursor = stream.last_cursor if last_cursor is None else max(last_cursor, stream.last_cursor)
    if last_cursor is not None:
        print_note(f"to go on: --after {last_cursor}")


@contextmanager
def _whole() -> Iterator[None]:
    """Ctrl-C waits until this is done, so that what was printed is also counted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


_LONGEST_EVENT = 64 * 1024 * 1024
_NOTHING_SEEN = -1


class ServerSentEvent(NamedTuple):
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
            for event in parse_events(pieces):
                self._reconnection.succeeded()
                if event.kind == b"error":
                    raise RefusedError(msgspec.json.decode(event.data))
                if event.kind == b"corrupt":
                    note_corrupt_batch(msgspec.json.decode(event.data))
                elif event.data:
                    yield event.data
                if event.id is not None:
                    self.last_cursor = event.id
                elif self.last_cursor is None:
                    # A first sign of life without an id: the log is empty, and everything that comes is new.
                    self.last_cursor = _NOTHING_SEEN


def parse_events(pieces: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Server-Sent Events out of the pieces of a stream. An event that is not complete at the end is not one."""
    kind, number, data, has_lines = b"", None, list[bytes](), False
    for line in _lines(pieces):
        if not line:
            if has_lines:
                yield ServerSentEvent(kind, number, b"\n".join(data))
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
