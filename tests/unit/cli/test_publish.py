"""Lines of stdin, in batches as they arrive."""

import os
import threading

from tailrace.cli.publish import LineBatch, line_batches


def written(data: bytes, max_lines: int = 1_000, max_bytes: int = 1 << 20) -> list[LineBatch]:
    """Return the batches of lines read from a pipe that this was written to."""
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


def test_batches_have_at_most_so_many_lines_and_know_their_first() -> None:
    data = b"".join(b"%d\n" % number for number in range(100_000))
    found = written(data, max_lines=999)
    assert [line for portion in found for line in portion.lines] == [b"%d" % number for number in range(100_000)]
    assert all(len(portion.lines) <= 999 for portion in found)
    assert all(portion.lines[0] == b"%d" % (portion.first_line - 1) for portion in found)
    assert found[-1].read_bytes == len(data)


def test_batches_have_at_most_so_many_bytes() -> None:
    found = written(b"x" * 600 + b"\n" + b"y" * 600 + b"\n" + b"z" * 5_000 + b"\n", max_bytes=1_000)
    assert [[line[:1] for line in portion.lines] for portion in found] == [[b"x"], [b"y"], [b"z"]]


def test_lines_end_in_any_way_and_empty_ones_count() -> None:
    lines = [line for portion in written(b"a\r\n\nb\n\xff\nlast") for line in portion.lines]
    assert lines == [b"a", b"", b"b", b"\xff", b"last"]


def test_no_input_is_no_batch() -> None:
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
