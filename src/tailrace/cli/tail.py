"""`tailrace tail`: print new messages of all topics that match a pattern, as they come.

`EventStream` reads a subscription over any number of connections, without gaps and duplicates: it continues after the id of the
last thing that the server sent, an event or a keep-alive.
"""

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

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
from tailrace.cli.display import MessagePrinter, note_corrupt_batch, print_note
from tailrace.cli.errors import CommandError, UsageError
from tailrace.model.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.cli.server_api import Reconnection, ServerApi

_MAX_LINE_BYTES = 64 * 1024 * 1024
_BEFORE_FIRST = -1


def tail(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="A topic, orders.* for one level below, orders.> for all levels, > for everything."
        ),
    ],
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="CURSOR", min=-1, help="Continue after this cursor, the last one that was seen."),
    ] = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="EDGE", help="Where to start: beginning, or latest (the default).")
    ] = None,
    limit: LimitOption = None,
    shape: FormatOption = None,
    as_json: JsonOption = False,
    skip_corrupt: SkipCorruptOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print new messages of all topics that match a pattern, in the order of the log.

    Reconnects by itself when the server was away, without gaps or duplicates.
    Each message has its cursor, and Ctrl-C prints where to continue.

    [bold]Examples[/]
    tailrace tail shop.orders
    tailrace tail 'shop.>' --cursor beginning
    tailrace tail '>' --after 4711 --json | jq .value
    """
    if after is not None and cursor is not None:
        raise UsageError("--after and --cursor both say where to start; give one of them")
    if cursor is not None and cursor.isascii() and cursor.isdigit():
        raise UsageError(
            f"--cursor takes beginning or latest. --after {cursor} starts with the message after that cursor,"
            f" --after {int(cursor) - 1} with the message itself"
        )
    import msgspec

    from tailrace.api.messages import ReadMessage
    from tailrace.cli.server_api import Reconnection, ServerApi

    printer = MessagePrinter(MessageFormat.JSON if as_json else shape, with_topic=True)
    decode = msgspec.json.Decoder(ReadMessage).decode
    printed = 0
    last_cursor: int | None = None
    with ServerApi(server) as api:
        start = {"cursor": cursor or "latest"} if after is None else {"after": str(after)}
        stream = EventStream(api, pattern, start, Reconnection(api, print_note), skips_corrupt=skip_corrupt)
        try:
            for data in stream.messages():
                message = decode(data)
                with _uninterrupted():
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
        print_note(f"to continue: --after {last_cursor}")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block is done, so that what was printed is also counted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class ServerSentEvent(NamedTuple):
    kind: bytes
    """Empty for messages."""
    id: int | None
    data: bytes
    """Empty for keep-alives."""


class EventStream:
    """Messages of a subscription. After a broken connection or a server that stops, it connects again; a refusal ends it."""

    def __init__(
        self,
        server: "ServerApi",
        pattern: str,
        start: Mapping[str, str],
        reconnection: "Reconnection",
        *,
        skips_corrupt: bool = False,
    ) -> None:
        """`start` is where to start, as `/api/subscribe` takes it."""
        self._server = server
        self._query = {"pattern": pattern, **start, **({"corrupt_batches": "skip"} if skips_corrupt else {})}
        self._reconnection = reconnection
        self.last_cursor: int | None = None
        """The cursor up to which everything was received; `-1` if the log was empty."""

    def messages(self) -> Iterator[bytes]:
        """Yield messages as JSON, for ever."""
        while True:
            try:
                yield from self._connection()
            except TailraceError as error:
                self._reconnection.after(error)
            else:
                self._reconnection.wait("the server ended the stream")

    def _connection(self) -> Iterator[bytes]:
        import msgspec

        from tailrace.client.errors import error_from_response

        headers = {} if self.last_cursor is None else {"last-event-id": str(self.last_cursor)}
        with self._server.stream("/api/subscribe", self._query, headers) as pieces:
            for event in parse_events(pieces):
                self._reconnection.succeeded()
                if event.kind == b"error":
                    raise error_from_response(500, event.data)
                if event.kind == b"corrupt":
                    note_corrupt_batch(msgspec.json.decode(event.data))
                elif event.data:
                    yield event.data
                if event.id is not None:
                    self.last_cursor = event.id
                elif self.last_cursor is None:
                    # A first keep-alive without an id: the log is empty, and everything that comes is new.
                    self.last_cursor = _BEFORE_FIRST


def parse_events(pieces: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Parse a stream of Server-Sent Events. An incomplete event at the end is dropped."""
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
    partial: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        if whole:
            whole[0] = b"".join([*partial, whole[0]])
            partial, size = [], 0
            yield from whole
        partial.append(rest)
        size += len(rest)
        if size > _MAX_LINE_BYTES:
            raise CommandError(f"invalid response: the server sent a line of more than {_MAX_LINE_BYTES:,} bytes")
