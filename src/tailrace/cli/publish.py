"""`tailrace publish`: publishes one message from the command line, or a message for each line of stdin.

Lines are sent in batches. A batch is one atomic publish, and the next one is sent when it is stored, so messages have the order
of the lines, and an error says exactly which lines are stored. A slow writer into a pipe does not have to fill a batch: when
nothing comes for a moment, the lines so far are sent.
"""

import base64
import binascii
import os
import select
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, JsonOption, ServerOption
from tailrace.cli.errors import CommandError, ExitCode, UsageError, exit_code_of
from tailrace.model.errors import TailraceError
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi


_BATCH_BYTES = 4 * 1024 * 1024
_STDIN = 0
_NO_VALUE = b"null"


class ValueEncoding(StrEnum):
    TEXT = "text"
    JSON = "json"
    BASE64 = "base64"


class MessageTemplate(NamedTuple):
    """What all messages of one command have in common."""

    topic: str
    kind: ValueEncoding
    key: str | None
    key_separator: str | None
    headers: tuple[tuple[str, str], ...]
    partition: int | None

    def message(self, line: bytes, what: str) -> dict[str, Any]:
        """Build a message from a line. `what` names the line in errors."""
        message: dict[str, Any] = {"topic": self.topic}
        key = self.key
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator.encode())
            if not separator:
                raise CommandError(f"{what} has no {self.key_separator!r} after its key")
            message["key_base64"], line = before, after
        if key is not None:
            message["key"] = key
        if self.headers:
            message["headers"] = [{"name": name, "value": value} for name, value in self.headers]
        if self.partition is not None:
            message["partition_id"] = self.partition
        return message | self._value(line, what)

    def _value(self, line: bytes, what: str) -> dict[str, Any]:
        import msgspec

        # Bytes are stored as they are; only JSON can express that there is no value.
        if self.kind is ValueEncoding.TEXT:
            return {"value_base64": line}
        if self.kind is ValueEncoding.BASE64:
            try:
                return {"value_base64": base64.b64decode(line, validate=True)}
            except binascii.Error as error:
                raise CommandError(f"{what} is not base64: {error}") from error
        try:
            line.decode()
            value = msgspec.json.decode(line, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CommandError(f"{what} is not JSON: {error}") from error
        return {"value": None} if bytes(value) == _NO_VALUE else {"value_base64": line}


def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name or alias.")],
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="The message; without it, each line of stdin is one.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="Equal keys go to the same partition.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="The key is the part of a line before this text.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be repeated.")] = None,
    kind: Annotated[
        ValueEncoding,
        typer.Option("--as", help="json is validated, and null is a tombstone; base64 is decoded to bytes."),
    ] = ValueEncoding.TEXT,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="P", min=0, help="Publish to this one, instead of by key or round robin."),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, max=10_000, help="Lines that are stored together or not at all.")
    ] = 1_000,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Publish a message, or each line of stdin as one.

    Returns when everything is stored. Lines are stored in order and in atomic
    batches; an error says how many lines were stored.

    [bold]Examples[/]
    tailrace publish shop.orders '{"order": 1}' --key ann
    tailrace publish shop.orders --as json < orders.jsonl
    tail -f access.log | tailrace publish logs.access
    """
    if key is not None and key_separator is not None:
        raise UsageError("--key and --key-separator both define the key; give one of them")
    if key_separator == "":
        raise UsageError("--key-separator is empty; it must be the text after the key, such as :")
    template = MessageTemplate(topic, kind, key, key_separator, tuple(_header(text) for text in header or ()), partition)
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        if value is not None:
            _publish_one(api, template, value, as_json=as_json)
        else:
            _publish_lines(api, template, batch, as_json=as_json)


def _publish_one(api: "ServerApi", template: MessageTemplate, value: str, *, as_json: bool) -> None:
    from tailrace.cli.display import print_json

    message = template.message(os.fsencode(value), "the value")
    (record,) = api.post("/api/topics/publish", {"messages": [message]})["records"]
    if as_json:
        print_json(record)
        return
    place = f"{record['topic_name']}, partition {record['partition_id']}, offset {record['offset']}"
    typer.echo(f"a duplicate of {place}" if record["duplicate"] else f"stored in {place}, cursor {record['cursor']}")


def _publish_lines(api: "ServerApi", template: MessageTemplate, batch: int, *, as_json: bool) -> None:
    from tailrace.cli.display import ProgressState, print_json, print_note, progress, size_of_input

    if sys.stdin.isatty():
        print_note("each line is a message; Ctrl-D ends")
    stored = duplicates = 0
    last_cursor: int | None = None
    in_flight: LineBatch | None = None
    try:
        total = size_of_input(_STDIN)
        with progress("messages") as bar:
            for batch_lines in line_batches(_STDIN, batch, _BATCH_BYTES):
                in_flight = batch_lines
                records = api.post("/api/topics/publish", {"messages": _messages(template, batch_lines)})["records"]
                in_flight = None
                repeated = sum(record["duplicate"] for record in records)
                duplicates += repeated
                stored += len(records) - repeated
                last_cursor = max((record["cursor"] for record in records if record["cursor"] is not None), default=last_cursor)
                bar.advance(ProgressState(stored, batch_lines.read_bytes, total))
    except (CommandError, TailraceError, KeyboardInterrupt) as error:
        is_in_doubt = isinstance(error, KeyboardInterrupt) or exit_code_of(error) is ExitCode.UNKNOWN
        print_note(_stored_summary(template.topic, stored, in_flight, is_in_doubt=is_in_doubt))
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        raise
    if as_json:
        print_json({"topic": template.topic, "stored": stored, "duplicates": duplicates, "last_cursor": last_cursor})
    else:
        rest = f"; {counted(duplicates, 'duplicate')} left out" if duplicates else ""
        typer.echo(f"{counted(stored, 'message')} stored in {template.topic}{rest}")


def _messages(template: MessageTemplate, batch_lines: "LineBatch") -> list[dict[str, Any]]:
    return [template.message(line, f"line {number:,}") for number, line in enumerate(batch_lines.lines, batch_lines.first_line)]


def _stored_summary(topic: str, stored: int, in_flight: "LineBatch | None", *, is_in_doubt: bool) -> str:
    """Describe what is stored and what is not, after an error."""
    text = f"{counted(stored, 'message')} stored in {topic}"
    if in_flight is None:
        return text
    last = in_flight.first_line + len(in_flight.lines) - 1
    if is_in_doubt:
        return f"{text}; lines {in_flight.first_line:,} to {last:,} may be stored or not, all or none of them"
    return f"{text}; nothing is stored from line {in_flight.first_line:,} on"


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"the header {text!r} must be NAME=VALUE")
    return name, value


_READ_BYTES = 256 * 1024
_PAUSE_SECONDS = 0.05
_MAX_LINE_BYTES = 16 * 1024 * 1024


class LineBatch(NamedTuple):
    first_line: int
    """Counted from 1."""
    lines: list[bytes]
    """Without line ends."""
    read_bytes: int
    """How much of the input was read so far."""


def line_batches(descriptor: int, max_lines: int, max_bytes: int) -> Iterator[LineBatch]:
    """Yield lines in order, in batches of at most this number and size; a longer line is a batch of its own."""
    number, size, waiting, read = 1, 0, list[bytes](), 0
    for lines, read in _read_lines(descriptor):
        if lines is None:
            if waiting:
                yield LineBatch(number, waiting, read)
                number, size, waiting = number + len(waiting), 0, []
            continue
        for line in lines:
            if waiting and (len(waiting) >= max_lines or size + len(line) > max_bytes):
                yield LineBatch(number, waiting, read)
                number, size, waiting = number + len(waiting), 0, []
            waiting.append(line)
            size += len(line)
    if waiting:
        yield LineBatch(number, waiting, read)


def _read_lines(descriptor: int) -> Iterator[tuple[list[bytes] | None, int]]:
    """Yield complete lines, or `None` when nothing comes for a moment; each with how much was read."""
    partial: list[bytes] = []
    partial_bytes = read = 0
    is_idle = False
    while True:
        if not is_idle and not select.select([descriptor], [], [], _PAUSE_SECONDS)[0]:
            is_idle = True
            yield None, read
        data = os.read(descriptor, _READ_BYTES)
        is_idle = False
        read += len(data)
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*partial, whole[0]])
            partial, partial_bytes = [], 0
            yield [line.removesuffix(b"\r") for line in whole], read
        if rest:
            partial.append(rest)
            partial_bytes += len(rest)
        if partial_bytes > _MAX_LINE_BYTES:
            raise CommandError(f"a line of the input is longer than {_MAX_LINE_BYTES:,} bytes; no message can be so large")
        if not data:
            if partial:
                yield [b"".join(partial).removesuffix(b"\r")], read
            return
