"""An Arrow stream is split into its messages, whatever the size of its parts."""

import io
from typing import Any

import pyarrow as pa
import pytest

from tailrace.wire.arrow_stream import InvalidStreamError, MessageSplitter

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})


def _stream(compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(TABLE)
        writer.write_table(TABLE)
    return sink.getvalue()


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 100_000])
def test_messages_come_out_of_parts_of_any_size(part_bytes: int) -> None:
    splitter, data = MessageSplitter(), _stream()
    messages: list[Any] = []
    for at in range(0, len(data), part_bytes):
        messages += splitter.feed(data[at : at + part_bytes])
    assert splitter.is_ended
    assert [(message.is_batch, message.rows) for message in messages] == [(False, 0), (True, 3), (True, 3)]
    schema = pa.ipc.read_schema(pa.py_buffer(messages[0].data))
    assert pa.ipc.read_record_batch(pa.py_buffer(messages[1].data), schema).to_pydict() == TABLE.to_pydict()


def test_compressed_batches_are_told() -> None:
    assert [message.is_compressed for message in MessageSplitter().feed(_stream("zstd"))] == [False, True, True]


def test_a_stream_that_was_cut_off_has_not_ended() -> None:
    splitter = MessageSplitter()
    splitter.feed(_stream()[:-8])
    assert not splitter.is_ended


@pytest.mark.parametrize(
    "data", [b"id,a\n1,2\n3,4\n", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10\0\0\0" + b"\xff" * 16]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidStreamError):
        MessageSplitter().feed(data)
