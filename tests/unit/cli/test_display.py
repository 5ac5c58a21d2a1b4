"""What `consume` and `tail` print."""

import io
import sys

import msgspec
import pytest

from tailrace.api.messages import ReadMessage
from tailrace.cli.command_line import MessageFormat
from tailrace.cli.display import MessagePrinter


class NarrowPipe(io.RawIOBase):
    """Takes a few bytes at a time, as a pipe does that nobody reads fast enough."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        self.taken += bytes(data[:10])
        return min(10, len(data))


class Unbuffered:
    def __init__(self) -> None:
        self.buffer = NarrowPipe()

    def isatty(self) -> bool:
        return False


def test_values_are_written_whole_where_output_is_not_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Unbuffered()
    monkeypatch.setattr(sys, "stdout", out)
    value = b'"' + b"x" * 1_000 + b'"'
    MessagePrinter(MessageFormat.VALUE, with_topic=False).show(ReadMessage("t", 0, 0, 0, 0, value=msgspec.Raw(value)))
    assert out.buffer.taken == value + b"\n"
