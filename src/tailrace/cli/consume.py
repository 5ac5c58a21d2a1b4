"""`tailrace consume`: print the messages of a topic, alone or for a group."""

import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

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
from tailrace.cli.display import MessagePrinter, ProgressState, note_corrupt_batch, print_note, progress
from tailrace.cli.errors import ExitCode, UsageError
from tailrace.model.errors import TailraceError, UnknownTopicIdError

if TYPE_CHECKING:
    from tailrace.api.consume import ConsumeResponse
    from tailrace.cli.server_api import Reconnection, ServerApi

_WAIT_MS = 20_000
_MESSAGES_PER_REQUEST = 1_000

_AGO = re.compile(r"(\d{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_DIGITS = 18

StartPosition = str | int | dict[str, int]
"""Where to start reading, as the HTTP API takes it."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name or alias.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="NAME", help="Start at the committed offsets of this group.")
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
    follow: Annotated[bool, typer.Option("--follow", help="At the end, wait for new messages.")] = False,
    ack: Annotated[bool, typer.Option("--ack", help="Commit the offsets of printed messages for the group.")] = False,
    shape: FormatOption = None,
    as_json: JsonOption = False,
    skip_corrupt: SkipCorruptOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print the messages of a topic, up to its end.

    With a group it starts after what the group has acked, and --from counts
    only the first time. The group's offsets move only with --ack, after the
    messages were printed: if it is killed in between, they are printed again.

    [bold]Examples[/]
    tailrace consume shop.orders --limit 10
    tailrace consume shop.orders --from 10m --follow
    tailrace consume shop.orders --group billing --ack --format value | ./bill
    """
    if ack and group is None:
        raise UsageError("--ack commits offsets for a group; name it with --group")
    first: dict[str, Any] = {"topic": topic, "group_id": group, "partition_id": partition}
    if start is not None:
        first["start"] = parse_start(start)
    if skip_corrupt:
        first["corrupt_batches"] = "skip"
    from tailrace.cli.server_api import Reconnection, ServerApi

    printer = MessagePrinter(MessageFormat.JSON if as_json else shape, with_topic=False)
    with ServerApi(server) as api:
        loop = ConsumeLoop(api, first, printer, group if ack else None)
        try:
            if follow:
                _follow(loop, Reconnection(api, print_note), limit)
            else:
                _read_to_end(loop, limit)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.OK if follow else ExitCode.INTERRUPTED) from None


def _read_to_end(loop: "ConsumeLoop", limit: int | None) -> None:
    has_more = True
    with progress("messages", is_shown=not sys.stdout.isatty()) as bar:
        while has_more and loop.printed != limit:
            has_more = loop.step(limit)
            total = loop.printed + loop.left
            bar.advance(ProgressState(loop.printed, loop.printed, total if limit is None else min(limit, total)))


def _follow(loop: "ConsumeLoop", reconnection: "Reconnection", limit: int | None) -> None:
    while loop.printed != limit:
        try:
            loop.step(limit, _WAIT_MS)
            loop.look_for_new_partitions()
        except TailraceError as error:
            reconnection.after(error)
        else:
            reconnection.succeeded()


class ConsumeLoop:
    """Reads a topic request by request: each starts where the last one ended, and a failed step can be repeated.

    If the topic was deleted and created again, it says so and reads the new one from its start, or from where the first request
    says.
    """

    def __init__(
        self,
        api: "ServerApi",
        first: dict[str, Any],
        printer: MessagePrinter,
        acking: str | None,
        partition_check_seconds: float = 10.0,
    ) -> None:
        """`first` is the first request; `acking` is the group whose offsets are committed, if any."""
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
        """The topic that the positions and unacked offsets belong to."""
        self._partition_check_seconds = partition_check_seconds
        self._partitions_checked_at = time.monotonic()
        self.printed = 0
        self.left = 0
        """How many messages were left to read after the last step."""

    def step(self, limit: int | None, wait_ms: int = 0) -> bool:
        """Read, print and ack messages. Return whether there are more to read right now."""
        try:
            return self._step(limit, wait_ms)
        except UnknownTopicIdError as error:
            self._start_over(error)
            return True

    def look_for_new_partitions(self) -> None:
        """Add partitions that were created since the first request to the positions, at most once in a while."""
        is_due = self._all_partitions and time.monotonic() - self._partitions_checked_at >= self._partition_check_seconds
        if not is_due or "positions" not in self._request:
            return
        self._partitions_checked_at = time.monotonic()
        known = {each["partition_id"]: each["offset"] for each in self._request["positions"]}
        found = self._api.pages(f"/api/topics/{quote(self._topic, safe='')}/partitions", "partitions")
        self._continue_at({each["partition_id"]: each["start_offset"] for each in found} | known)

    def _step(self, limit: int | None, wait_ms: int) -> bool:
        import msgspec

        self._ack()
        answer = self._read(
            _MESSAGES_PER_REQUEST if limit is None else min(_MESSAGES_PER_REQUEST, limit - self.printed), wait_ms
        )
        for message in answer.messages:
            self._printer.show(message)
        self._printer.flush()
        for batch in answer.corrupt if self._corrupt_batches == "skip" else ():
            note_corrupt_batch(msgspec.structs.asdict(batch))
        self.printed += len(answer.messages)
        self._unacked = {message.partition_id: message.offset for message in answer.messages}
        self.left = sum(each.end_offset - each.next_offset for each in answer.partitions)
        self._topic_uuid = str(answer.topic_uuid)
        self._continue_at({each.partition_id: each.next_offset for each in answer.partitions})
        self._ack()
        return answer.has_more

    def _read(self, limit: int, wait_ms: int) -> "ConsumeResponse":
        from tailrace.api.consume import ConsumeResponse

        body = {**self._request, "limit": limit, "timeout_ms": wait_ms}
        return self._api.repeat("/api/topics/consume", body, ConsumeResponse, seconds=wait_ms / 1000)

    def _continue_at(self, offsets: dict[int, int]) -> None:
        positions = [{"partition_id": partition, "offset": offset} for partition, offset in offsets.items()]
        self._request = {
            "topic": self._topic,
            "topic_uuid": self._topic_uuid,
            "positions": positions,
            "corrupt_batches": self._corrupt_batches,
        }

    def _start_over(self, error: UnknownTopicIdError) -> None:
        print_note(f"{error}; reading it from its start")
        self._unacked = {}
        self._topic_uuid = None
        self._request = dict(self._first)
        if isinstance(self._request.get("start"), int):
            # It is an offset of the deleted topic.
            del self._request["start"]

    def _ack(self) -> None:
        """Commit the offsets of what was printed. It may be repeated: the same offset again changes nothing."""
        for partition, offset in sorted(self._unacked.items()) if self._acking is not None else ():
            body = {"topic": self._topic, "topic_uuid": self._topic_uuid, "group_id": self._acking}
            body |= {"partition_id": partition, "upto_offset": offset}
            self._api.repeat("/api/topics/ack", body, dict)
            del self._unacked[partition]


def parse_start(text: str) -> StartPosition:
    """Read `earliest`, `latest`, an offset, a time or how long ago, as it is given on the command line."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS:
        return int(word)
    if ago := _AGO.fullmatch(word):
        return {"timestamp_ms": max(0, round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000))}
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is not a position; it must be earliest, latest, an offset, a time such as 2026-01-28T12:00:00Z, or"
            " how long ago: 90s, 10m, 2h, 3d"
        ) from None
    instant = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return {"timestamp_ms": max(0, round(instant.timestamp() * 1000))}
