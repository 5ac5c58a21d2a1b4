"""`tailrace tail`: print what comes to all topics that match a pattern, as it comes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tailrace.cli.failures import UsageError
from tailrace.cli.formats import MessageFormat
from tailrace.cli.options import DEFAULT_SERVER, FormatOption, JsonOption, LimitOption, ServerOption, SkipCorruptOption


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

    from tailrace.cli.display import note
    from tailrace.cli.event_stream import EventStream
    from tailrace.cli.messages import MessagePrinter
    from tailrace.cli.reconnecting import Reconnection
    from tailrace.cli.server_api import ServerApi
    from tailrace.http.messages import ReadMessage

    printer = MessagePrinter(MessageFormat.JSON if as_json else shape, with_topic=True)
    decode = msgspec.json.Decoder(ReadMessage).decode
    printed = 0
    last_cursor: int | None = None
    with ServerApi(server) as api:
        place = {"cursor": cursor or "latest"} if after is None else {"after": str(after)}
        stream = EventStream(api, pattern, place, Reconnection(api, note), skips_corrupt=skip_corrupt)
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
        note(f"to go on: --after {last_cursor}")


@contextmanager
def _whole() -> Iterator[None]:
    """Ctrl-C waits until this is done, so that what was printed is also counted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
