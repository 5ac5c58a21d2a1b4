"""`tailrace consume`: print the messages of a topic, alone or for a group."""

import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from tailrace.api.consume import ConsumeResponse
from tailrace.cli.command_line import (
    DEFAULT_SERVER,
    FormatOption,
    JsonOption,
    LimitOption,
    MessageFormat,
    PartitionOption,
    ServerOption,
    SkipCorruptOption,
)
from tailrace.cli.display import MessagePrinter, note_corrupt_batch, print_note
from tailrace.cli.errors import CommandError, ExitCode, RefusedError, UsageError
from tailrace.cli.server_api import ServerApi

if TYPE_CHECKING:
    from tailrace.cli.server_api import Reconnection


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
    from tailrace.cli.display import MessagePrinter
    from tailrace.cli.server_api import Reconnection, ServerApi

    printer = MessagePrinter(MessageFormat.JSON if as_json else shape, with_topic=False)
    with ServerApi(server) as api:
        reading = ConsumeLoop(api, first, printer, group if ack else None)
        try:
            if follow:
                _follow(reading, Reconnection(api, print_note), limit)
            else:
                _read_to_the_end(reading, limit)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.OK if follow else ExitCode.INTERRUPTED) from None


def _read_to_the_end(reading: "ConsumeLoop", limit: int | None) -> None:
    from tailrace.cli.display import ProgressState, progress

    has_more = True
    with progress("messages", is_shown=not sys.stdout.isatty()) as bar:
        while has_more and reading.printed != limit:
            has_more = reading.step(limit)
            total = reading.printed + reading.left
            bar.advance(ProgressState(reading.printed, reading.printed, total if limit is None else min(limit, total)))


def _follow(reading: "ConsumeLoop", reconnection: "Reconnection", limit: int | None) -> None:
    while reading.printed != limit:
        try:
            reading.step(limit, _WAIT_MS)
            reading.look_for_new_partitions()
        except CommandError as error:
            reconnection.after(error)
        else:
            reconnection.succeeded()


_AT_ONCE = 1_000


class ConsumeLoop:
    """Each request begins where the last one ended, whether or not a group has acked it. A step that failed is taken again.

    A topic that was deleted and made again is told, and read from its beginning or where the first request says.
    """

    def __init__(
        self, api: ServerApi, first: dict[str, Any], printer: MessagePrinter, acking: str | None, look_seconds: float = 10.0
    ) -> None:
        self._api = api
        self._topic = first["topic"]
        self._all_partitions = first["partition_id"] is None
        self._first = first
        self._request = first
        self._corrupt_batches = first.get("corrupt_batches", "report")
        self._printer = printer
        self._acking = acking
        self._unacked: dict[int, int] = {}
        self._topic_uuid: str | None = None
        """Which topic the positions and what is not acked belong to."""
        self._look_seconds = look_seconds
        self._looked_at = time.monotonic()
        self.printed = 0
        self.left = 0
        """How many more there were at the last step."""

    def step(self, limit: int | None, wait_ms: int = 0) -> bool:
        """Read, print, ack; whether there is more to read right now."""
        try:
            return self._step(limit, wait_ms)
        except RefusedError as error:
            if error.kind != "unknown-topic-id":
                raise
            self._begin_again(error)
            return True

    def look_for_new_partitions(self) -> None:
        """The topic may have grown since the first request, which meant all partitions that there were."""
        is_due = self._all_partitions and time.monotonic() - self._looked_at >= self._look_seconds
        if not is_due or "positions" not in self._request:
            return
        self._looked_at = time.monotonic()
        known = {each["partition_id"]: each["offset"] for each in self._request["positions"]}
        found = self._api.pages(f"/api/topics/{quote(self._topic, safe='')}/partitions", "partitions")
        self._go_on_at({each["partition_id"]: each["start_offset"] for each in found} | known)

    def _step(self, limit: int | None, wait_ms: int) -> bool:
        self._ack()
        answer = self._read(_AT_ONCE if limit is None else min(_AT_ONCE, limit - self.printed), wait_ms)
        for message in answer.messages:
            self._printer.show(message)
        self._printer.flush()
        for batch in answer.corrupt if self._corrupt_batches == "skip" else ():
            note_corrupt_batch(msgspec.structs.asdict(batch))
        self.printed += len(answer.messages)
        self._unacked = {message.partition_id: message.offset for message in answer.messages}
        self.left = sum(each.end_offset - each.next_offset for each in answer.partitions)
        self._topic_uuid = str(answer.topic_uuid)
        self._go_on_at({each.partition_id: each.next_offset for each in answer.partitions})
        self._ack()
        return answer.has_more

    def _read(self, limit: int, wait_ms: int) -> ConsumeResponse:
        body = {**self._request, "limit": limit, "timeout_ms": wait_ms}
        return self._api.repeat("/api/topics/consume", body, ConsumeResponse, seconds=wait_ms / 1000)

    def _go_on_at(self, offsets: dict[int, int]) -> None:
        positions = [{"partition_id": partition, "offset": offset} for partition, offset in offsets.items()]
        self._request = {
            "topic": self._topic,
            "topic_uuid": self._topic_uuid,
            "positions": positions,
            "corrupt_batches": self._corrupt_batches,
        }

    def _begin_again(self, error: RefusedError) -> None:
        print_note(f"{error}; reading it from its start")
        self._unacked = {}
        self._topic_uuid = None
        self._request = dict(self._first)
        if isinstance(self._request.get("start"), int):
            # An offset of the topic that is gone.
            del self._request["start"]

    def _ack(self) -> None:
        """What was printed. The same offset again changes nothing, so this may be repeated."""
        for partition, offset in sorted(self._unacked.items()) if self._acking is not None else ():
            body = {"topic": self._topic, "topic_uuid": self._topic_uuid, "group_id": self._acking}
            body |= {"partition_id": partition, "upto_offset": offset}
            self._api.repeat("/api/topics/ack", body, dict)
            del self._unacked[partition]


_AGO = re.compile(r"(\d{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MOST_DIGITS = 18

StartPosition = str | int | dict[str, int]
"""As the HTTP API takes it."""


def parse_start(text: str) -> StartPosition:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS:
        return int(word)
    if ago := _AGO.fullmatch(word):
        return {"timestamp_ms": max(0, round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000))}
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is no place to begin; it must be earliest, latest, an offset, a time such as 2026-01-28T12:00:00Z, or"
            " how long ago: 90s, 10m, 2h, 3d"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return {"timestamp_ms": max(0, round(moment.timestamp() * 1000))}
