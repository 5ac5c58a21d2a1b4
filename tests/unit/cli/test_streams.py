"""Server-Sent Events and lines, in whatever pieces they come."""

import os
import threading
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.publish import LineBatch, line_batches
from tailrace.cli.tail import ServerSentEvent, parse_events

STREAM = (
    b": still here\nid: 6\n\n"
    b'id: 7\ndata: {"a":1}\n\n'
    b'id: 8\ndata: {"a":\ndata: 2}\n\n'
    b": still here\n\n"
    b'event: error\ndata: {"detail":"slow"}\n\n'
    b'id: 9\ndata: {"never": "complete"}\n'
)
EVENTS = [
    ServerSentEvent(b"", 6, b""),
    ServerSentEvent(b"", 7, b'{"a":1}'),
    ServerSentEvent(b"", 8, b'{"a":\n2}'),
    ServerSentEvent(b"", None, b""),
    ServerSentEvent(b"error", None, b'{"detail":"slow"}'),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_in_any_pieces(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(places)]
    assert list(parse_events(pieces)) == EVENTS


def test_an_event_that_was_cut_off_is_none() -> None:
    assert list(parse_events([b'id: 1\ndata: {"half'])) == []


def written(data: bytes, max_lines: int = 1_000, max_bytes: int = 1 << 20) -> list[LineBatch]:
    """What comes out of a pipe that this was written to."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return list(line_batches(reading, max_lines, max_bytes))
    finally:
        writer.join()
        os.close(reading)


def test_portions_hold_so_many_lines_and_say_which() -> None:
    data = b"".join(b"%d\n" % number for number in range(100_000))
    found = written(data, max_lines=999)
    assert [line for portion in found for line in portion.lines] == [b"%d" % number for number in range(100_000)]
    assert all(len(portion.lines) <= 999 for portion in found)
    assert all(portion.lines[0] == b"%d" % (portion.first_line - 1) for portion in found)
    assert found[-1].read_bytes == len(data)


def test_portions_hold_so_many_bytes() -> None:
    found = written(b"x" * 600 + b"\n" + b"y" * 600 + b"\n" + b"z" * 5_000 + b"\n", max_bytes=1_000)
    assert [[line[:1] for line in portion.lines] for portion in found] == [[b"x"], [b"y"], [b"z"]]


def test_lines_end_in_any_way_and_empty_ones_count() -> None:
    lines = [line for portion in written(b"a\r\n\nb\n\xff\nlast") for line in portion.lines]
    assert lines == [b"a", b"", b"b", b"\xff", b"last"]


def test_no_input_is_no_portion() -> None:
    assert written(b"") == []


def test_a_slow_writer_is_not_kept_waiting() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"first\n")
    found = line_batches(reading, 1_000, 1 << 20)
    assert next(found).lines == [b"first"]
    os.write(writing, b"second\nhalf")
    assert next(found).lines == [b"second"]
    os.close(writing)
    assert next(found) == LineBatch(3, [b"half"], 17)
    os.close(reading)
