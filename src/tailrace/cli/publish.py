"""`tailrace publish`: one message from the command line, or a message for each line of stdin.

Lines go in batches. A batch is one atomic publish, and the next one is sent when it is stored, so the order of the lines is the
order of the messages, and an error says exactly which lines are stored.
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
    """What all messages of a command have in common."""

    topic: str
    kind: ValueEncoding
    key: str | None
    key_separator: str | None
    headers: tuple[tuple[str, str], ...]
    partition: int | None

    def message(self, line: bytes, what: str) -> dict[str, Any]:
        """`what` names the value in errors."""
        message: dict[str, Any] = {"topic": self.topic}
        key = self.key
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator.encode())
            if not separator:
                raise CommandError(f"{what} has no {self.key_separator!r} that would end its key")
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

        # Bytes are stored as they are either way; only JSON has a word for no value.
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
        str | None, typer.Argument(metavar="VALUE", help="The message; left out, each line of stdin is one.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="Equal keys go to the same partition.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="What stands before it in a line is the key.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be repeated.")] = None,
    kind: Annotated[
        ValueEncoding,
        typer.Option("--as", help="json is checked, and its null is a tombstone; base64 is how bytes are written."),
    ] = ValueEncoding.TEXT,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="P", min=0, help="Instead of one chosen by key, or in turn.")
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, max=10_000, help="Lines that are stored together, or not at all.")
    ] = 1_000,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Publish a message, or each line of stdin as one.

    Returns when everything is stored. Lines are stored in order and in batches,
    each whole or not at all; an error says how many were stored.

    [bold]Examples[/]
    tailrace publish shop.orders '{"order": 1}' --key ann
    tailrace publish shop.orders --as json < orders.jsonl
    tail -f access.log | tailrace publish logs.access
    """
    if key is not None and key_separator is not None:
        raise UsageError("--key and --key-separator both say what the key is; give one of them")
    if key_separator == "":
        raise UsageError("--key-separator is empty; it must be what ends the key, such as :")
    envelope = MessageTemplate(topic, kind, key, key_separator, tuple(_header(text) for text in header or ()), partition)
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        if value is not None:
            _publish_one(api, envelope, value, as_json=as_json)
        else:
            _publish_lines(api, envelope, batch, as_json=as_json)


def _publish_one(api: "ServerApi", envelope: MessageTemplate, value: str, *, as_json: bool) -> None:
    from tailrace.cli.display import print_json

    message = envelope.message(os.fsencode(value), "the value")
    (record,) = api.post("/api/topics/publish", {"messages": [message]})["records"]
    if as_json:
        print_json(record)
        return
    place = f"{record['topic_name']}, partition {record['partition_id']}, offset {record['offset']}"
    typer.echo(f"a duplicate of {place}" if record["duplicate"] else f"stored in {place}, cursor {record['cursor']}")


def _publish_lines(api: "ServerApi", envelope: MessageTemplate, batch: int, *, as_json: bool) -> None:
    from tailrace.cli.display import ProgressState, print_json, print_note, progress, size_of_input

    if sys.stdin.isatty():
        print_note("each line is a message; Ctrl-D ends")
    stored = duplicates = 0
    last_cursor: int | None = None
    on_its_way: LineBatch | None = None
    try:
        total = size_of_input(_STDIN)
        with progress("messages") as bar:
            for portion in line_batches(_STDIN, batch, _BATCH_BYTES):
                on_its_way = portion
                records = api.post("/api/topics/publish", {"messages": _messages(envelope, portion)})["records"]
                on_its_way = None
                doubled = sum(record["duplicate"] for record in records)
                duplicates += doubled
                stored += len(records) - doubled
                last_cursor = max((record["cursor"] for record in records if record["cursor"] is not None), default=last_cursor)
                bar.advance(ProgressState(stored, portion.read_bytes, total))
    except (CommandError, TailraceError, KeyboardInterrupt) as error:
        is_in_doubt = isinstance(error, KeyboardInterrupt) or exit_code_of(error) is ExitCode.UNKNOWN
        print_note(_stored_summary(envelope.topic, stored, on_its_way, is_in_doubt=is_in_doubt))
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        raise
    if as_json:
        print_json({"topic": envelope.topic, "stored": stored, "duplicates": duplicates, "last_cursor": last_cursor})
    else:
        rest = f"; {counted(duplicates, 'duplicate')} left out" if duplicates else ""
        typer.echo(f"{counted(stored, 'message')} stored in {envelope.topic}{rest}")


def _messages(envelope: MessageTemplate, portion: "LineBatch") -> list[dict[str, Any]]:
    return [envelope.message(line, f"line {number:,}") for number, line in enumerate(portion.lines, portion.first_line)]


def _stored_summary(topic: str, stored: int, on_its_way: "LineBatch | None", *, is_in_doubt: bool) -> str:
    """What is stored when it ends too early, and what is not."""
    text = f"{counted(stored, 'message')} stored in {topic}"
    if on_its_way is None:
        return text
    last = on_its_way.first_line + len(on_its_way.lines) - 1
    if is_in_doubt:
        return f"{text}; lines {on_its_way.first_line:,} to {last:,} may be stored or not, all or none of them"
    return f"{text}; nothing is stored from line {on_its_way.first_line:,} on"


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"the header {text!r} must be NAME=VALUE")
    return name, value


_READ_BYTES = 256 * 1024
_PAUSE_SECONDS = 0.05
_LONGEST_LINE = 16 * 1024 * 1024


class LineBatch(NamedTuple):
    first_line: int
    """From 1."""
    lines: list[bytes]
    """Without their ends."""
    read_bytes: int
    """Of the whole input, up to here."""


def line_batches(descriptor: int, most_lines: int, most_bytes: int) -> Iterator[LineBatch]:
    """Lines in order, up to a number and a size; a single longer line is a portion of its own."""
    number, size, waiting, read = 1, 0, list[bytes](), 0
    for lines, read in _arriving(descriptor):
        if lines is None:
            if waiting:
                yield LineBatch(number, waiting, read)
                number, size, waiting = number + len(waiting), 0, []
            continue
        for line in lines:
            if waiting and (len(waiting) >= most_lines or size + len(line) > most_bytes):
                yield LineBatch(number, waiting, read)
                number, size, waiting = number + len(waiting), 0, []
            waiting.append(line)
            size += len(line)
    if waiting:
        yield LineBatch(number, waiting, read)


def _arriving(descriptor: int) -> Iterator[tuple[list[bytes] | None, int]]:
    """Whole lines, or `None` when nothing comes for a moment; each with how much was read."""
    begun: list[bytes] = []
    begun_bytes = read = 0
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
            whole[0] = b"".join([*begun, whole[0]])
            begun, begun_bytes = [], 0
            yield [line.removesuffix(b"\r") for line in whole], read
        if rest:
            begun.append(rest)
            begun_bytes += len(rest)
        if begun_bytes > _LONGEST_LINE:
            raise CommandError(f"a line of the input is longer than {_LONGEST_LINE:,} bytes; no message is so large")
        if not data:
            if begun:
                yield [b"".join(begun).removesuffix(b"\r")], read
            return
