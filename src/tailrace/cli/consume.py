"""`tailrace consume`: print the messages of a topic, alone or for a group."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.display import note
from tailrace.cli.exits import Exit
from tailrace.cli.failures import CommandError, UsageError
from tailrace.cli.formats import MessageFormat
from tailrace.cli.options import (
    DEFAULT_SERVER,
    FormatOption,
    JsonOption,
    LimitOption,
    PartitionOption,
    ServerOption,
    SkipCorruptOption,
)
from tailrace.cli.starts import parse_start

if TYPE_CHECKING:
    from tailrace.cli.reading import Reading
    from tailrace.cli.reconnecting import Reconnection

_WAIT_MS = 20_000


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name or alias.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="NAME", help="Begin where this group has come to.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest (the default), latest, an offset, a time, or how long ago: 90s, 10m, 2h, 3d.",
        ),
    ] = None,
    partition: PartitionOption = None,
    limit: LimitOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="At the end, wait for what comes.")] = False,
    ack: Annotated[bool, typer.Option("--ack", help="The group is done with what was printed.")] = False,
    shape: FormatOption = None,
    as_json: JsonOption = False,
    skip_corrupt: SkipCorruptOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print the messages of a topic, up to its end.

    With a group it begins behind what the group has acked, and the place of
    --from counts only the first time. The group moves with --ack only, after
    messages were printed: whoever is killed in between gets them again.

    [bold]Examples[/]
    tailrace consume shop.orders --limit 10
    tailrace consume shop.orders --from 10m --follow
    tailrace consume shop.orders --group billing --ack --format value | ./bill
    """
    if ack and group is None:
        raise UsageError("--ack is said for a group; name it with --group")
    first: dict[str, Any] = {"topic": topic, "group_id": group, "partition_id": partition}
    if start is not None:
        first["start"] = parse_start(start)
    if skip_corrupt:
        first["corrupt_batches"] = "skip"
    from tailrace.cli.messages import MessagePrinter
    from tailrace.cli.reading import Reading
    from tailrace.cli.reconnecting import Reconnection
    from tailrace.cli.server_api import ServerApi

    printer = MessagePrinter(MessageFormat.JSON if as_json else shape, with_topic=False)
    with ServerApi(server) as api:
        reading = Reading(api, first, printer, group if ack else None)
        try:
            if follow:
                _follow(reading, Reconnection(api, note), limit)
            else:
                _read_to_the_end(reading, limit)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.OK if follow else Exit.INTERRUPTED) from None


def _read_to_the_end(reading: "Reading", limit: int | None) -> None:
    from tailrace.cli.progress import Reached, progress

    has_more = True
    with progress("messages", is_shown=not sys.stdout.isatty()) as bar:
        while has_more and reading.printed != limit:
            has_more = reading.step(limit)
            total = reading.printed + reading.left
            bar.advance(Reached(reading.printed, reading.printed, total if limit is None else min(limit, total)))


def _follow(reading: "Reading", reconnection: "Reconnection", limit: int | None) -> None:
    while reading.printed != limit:
        try:
            reading.step(limit, _WAIT_MS)
            reading.look_for_new_partitions()
        except CommandError as error:
            reconnection.after(error)
        else:
            reconnection.succeeded()
