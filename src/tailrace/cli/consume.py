"""`tailrace consume`: print the messages of a topic, alone or for a group."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.exits import Exit
from tailrace.cli.failures import UsageError
from tailrace.cli.messages import Format, MessagePrinter
from tailrace.cli.options import DEFAULT_SERVER, JsonOption, PartitionOption, ServerOption
from tailrace.cli.starts import parse_start

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi
    from tailrace.http.consuming import ConsumeAnswer

_AT_ONCE = 1_000
_WAIT_MS = 20_000


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name or alias.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="Begin where this group has come to.")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest (the default), latest, an offset, a time, or how long ago: 90s, 10m, 2h, 3d.",
        ),
    ] = None,
    partition: PartitionOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Stop after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="At the end, wait for what comes.")] = False,
    ack: Annotated[bool, typer.Option("--ack", help="The group is done with what was printed.")] = False,
    shape: Annotated[
        Format | None,
        typer.Option("--format", help="value prints nothing else. By default text on a terminal and JSON elsewhere."),
    ] = None,
    as_json: JsonOption = False,
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
    from tailrace.cli.server_api import ServerApi

    printer = MessagePrinter(Format.JSON if as_json else shape, with_topic=False)
    with ServerApi(server) as api:
        reading = _Reading(api, first, printer, group if ack else None)
        try:
            reading.run(limit, follow=follow)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.OK if follow else Exit.INTERRUPTED) from None


class _Reading:
    """Each request begins where the last one ended, whether or not a group has acked it."""

    def __init__(self, api: "ServerApi", first: dict[str, Any], printer: MessagePrinter, acking: str | None) -> None:
        self._api = api
        self._request = first
        self._printer = printer
        self._acking = acking

    def run(self, limit: int | None, *, follow: bool) -> None:
        left = limit
        while left is None or left > 0:
            answer = self._read(min(_AT_ONCE, _AT_ONCE if left is None else left), _WAIT_MS if follow else 0)
            for message in answer.messages:
                self._printer.show(message)
            self._printer.flush()
            if self._acking is not None:
                self._ack(answer, self._acking)
            if left is not None:
                left -= len(answer.messages)
            if not answer.has_more and not follow:
                return

    def _read(self, limit: int, wait_ms: int) -> "ConsumeAnswer":
        from tailrace.http.consuming import ConsumeAnswer

        body = {**self._request, "limit": limit, "timeout_ms": wait_ms}
        answer = self._api.read("/api/topics/consume", body, ConsumeAnswer, seconds=wait_ms / 1000)
        self._request = {
            "topic": self._request["topic"],
            "positions": [{"partition_id": each.partition_id, "offset": each.next_offset} for each in answer.partitions],
        }
        return answer

    def _ack(self, answer: "ConsumeAnswer", group: str) -> None:
        last = {message.partition_id: message.offset for message in answer.messages}
        for partition, offset in sorted(last.items()):
            body = {"topic": self._request["topic"], "group_id": group, "partition_id": partition, "upto_offset": offset}
            self._api.post("/api/topics/ack", body)
