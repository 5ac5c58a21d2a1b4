"""Messages as `consume` and `tail` print them: a line of text for a person, JSON, or the bare value."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from tailrace.cli.display import console, printable
from tailrace.cli.formats import MessageFormat

if TYPE_CHECKING:
    from rich.text import Text

    from tailrace.http.messages import ReadMessage


class MessagePrinter:
    """`with_topic` is for streams that hold several."""

    def __init__(self, wanted: MessageFormat | None, *, with_topic: bool) -> None:
        self._format = wanted or (MessageFormat.TEXT if sys.stdout.isatty() else MessageFormat.JSON)
        self._with_topic = with_topic
        self._console = console()
        self._encode = msgspec.json.Encoder().encode

    def show(self, message: "ReadMessage") -> None:
        if self._format is MessageFormat.TEXT:
            self._console.print(self._text(message), soft_wrap=True)
        else:
            data = self._json(message) if self._format is MessageFormat.JSON else value_of(message)
            if data is not None:
                _write_whole(data + b"\n")

    def flush(self) -> None:
        """After this, whoever reads the output has it."""
        sys.stdout.flush()

    def _json(self, message: "ReadMessage") -> bytes:
        line: bytes = self._encode(message)
        # The value is as it was written, perhaps over several lines; between the words of JSON they mean nothing.
        return msgspec.json.format(line, indent=-1) if b"\n" in line or b"\r" in line else line

    def _text(self, message: "ReadMessage") -> "Text":
        from rich.text import Text

        moment = datetime.fromtimestamp(message.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = Text()
        if self._with_topic:
            line.append(f"{message.cursor}  ", "bold")
            line.append(f"{message.topic_name}[{message.partition_id}]  ", "cyan")
        else:
            line.append(f"{message.partition_id}:{message.offset}  ", "cyan")
        line.append(f"{moment}  ", "dim")
        key = message.key if isinstance(message.key, str) else message.key_base64
        if isinstance(key, str | bytes):
            line.append(f"{_shown(key)}  ", "green")
        value = value_of(message)
        return line.append("no value", "dim") if value is None else line.append(_shown(value))


def value_of(message: "ReadMessage") -> bytes | None:
    """As it was published; `None` for a tombstone."""
    if isinstance(message.value_base64, bytes):
        return message.value_base64
    value = bytes(message.value) if isinstance(message.value, msgspec.Raw) else b"null"
    return None if value == b"null" else value


def _shown(data: str | bytes) -> str:
    text = data if isinstance(data, str) else data.decode(errors="backslashreplace")
    return printable(text).replace("\n", " ")


def _write_whole(data: bytes) -> None:
    left = memoryview(data)
    while left:
        # Where PYTHONUNBUFFERED is set, as images of containers do, a write takes as much as the pipe does.
        left = left[sys.stdout.buffer.write(left) :]
