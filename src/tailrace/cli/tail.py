"""`tailrace tail`: print what comes to all topics that match a pattern, as it comes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tailrace.cli.formats import MessageFormat
from tailrace.cli.options import DEFAULT_SERVER, FormatOption, JsonOption, LimitOption, ServerOption


def tail(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="A topic, orders.* for one part more, orders.> for all below, > for everything."
        ),
    ],
    cursor: Annotated[
        str, typer.Option("--cursor", metavar="CURSOR", help="The first cursor to print: a number, beginning or latest.")
    ] = "latest",
    limit: LimitOption = None,
    shape: FormatOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print what comes to all topics that match a pattern, in the order of the log.

    Goes on by itself when the server was away, with nothing left out and
    nothing twice. Each message has its cursor, and Ctrl-C says where to go on.

    [bold]Examples[/]
    tailrace tail shop.orders
    tailrace tail 'shop.>' --cursor beginning
    tailrace tail '>' --cursor 4711 --json | jq .value
    """
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
    next_cursor: int | None = None
    with ServerApi(server) as api:
        stream = EventStream(api, pattern, cursor, Reconnection(api, note))
        try:
            for data in stream.messages():
                message = decode(data)
                with _whole():
                    printer.show(message)
                    printer.flush()
                    next_cursor = message.cursor + 1
                    printed += 1
                if printed == limit:
                    break
        except KeyboardInterrupt:
            if stream.last_cursor is not None:
                next_cursor = max(next_cursor or 0, stream.last_cursor + 1)
    if next_cursor is not None:
        note(f"to go on: --cursor {next_cursor}")


@contextmanager
def _whole() -> Iterator[None]:
    """Ctrl-C waits until this is done, so that what was printed is also counted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
