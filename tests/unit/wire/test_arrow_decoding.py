"""Batches are decoded to Arrow columns, doing only the work that the columns need, and columns are encoded as batches."""

import pyarrow as pa
import pytest

from tailrace.model.errors import CorruptBatchError, LimitExceededError
from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Record
from tailrace.wire.arrow_decoding import HEADER_LIST, BatchChunk, decode_to_arrow, plain_fields
from tailrace.wire.batch import HEADER_BYTES, read_header
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.compression import Compression
from tailrace.wire.decoding_kernels import load_decoding_kernels
from tailrace.wire.fast_arrow_decoding import CompiledRecordFields, load_compiled_fields
from tailrace.wire.fast_arrow_encoding import RecordColumns, load_encode_columns
from tailrace.wire.records import decode_batch, encode_batch

MANY = [Record(b"k", b"v" * 100_000, [("op", b"insert")], 5) for _ in range(100)]


def test_the_compiled_loops_read_ordinary_batches_themselves() -> None:
    batch = encode_batch([Record(b"k", None, [("op", None)], 5), Record(None, b"\xff", (), 3)])
    chunk = BatchChunk([PlacedBatch(Cursor(0), batch)], [read_header(batch)], [batch[HEADER_BYTES:]])
    assert CompiledRecordFields(chunk, DEFAULT_LIMITS, load_decoding_kernels()).is_right


def test_columns_of_the_head_need_no_records() -> None:
    batch = encode_batch(MANY[:3], codec=Compression.ZSTD)
    broken = batch[:HEADER_BYTES] + b"not compressed at all"
    (found,) = decode_to_arrow(
        [PlacedBatch(Cursor(9), broken)], ["cursor", "offset"], partition=0, limits=DEFAULT_LIMITS, read_fields=plain_fields
    )
    assert found.to_pydict() == {"cursor": [9, 10, 11], "offset": [0, 1, 2]}


def test_batches_that_swell_come_in_pieces() -> None:
    stored = [PlacedBatch(Cursor(0), encode_batch(MANY, codec=Compression.ZSTD))] * 4
    assert sum(len(batch) for _, batch in stored) < 10_000
    pieces = list(decode_to_arrow(stored, ["value"], partition=0, limits=DEFAULT_LIMITS, read_fields=load_compiled_fields()))
    assert [piece.num_rows for piece in pieces] == [100, 100, 100, 100]


def test_bytes_that_are_no_text_are_shown_in_hexadecimal() -> None:
    batch = encode_batch([Record(b"\x00\xff", "ä\n".encode(), [("trace", b"\xfe"), ("t\n", None)], 0)])
    (found,) = decode_to_arrow(
        [PlacedBatch(Cursor(0), batch)],
        ["key", "key_bytes", "value", "headers"],
        partition=0,
        limits=DEFAULT_LIMITS,
        read_fields=load_compiled_fields(),
    )
    assert found.to_pylist() == [
        {"key": "\\x00ff", "key_bytes": b"\x00\xff", "value": "ä\n", "headers": '{"trace":"\\\\xfe","t\\n":null}'}
    ]


def test_a_batch_that_lies_is_refused_with_what_is_wrong() -> None:
    batch = encode_batch(MANY[:2])
    batch[HEADER_BYTES + 5] = 77
    with pytest.raises(CorruptBatchError, match="record 0 of the batch"):
        list(
            decode_to_arrow(
                [PlacedBatch(Cursor(0), batch)], ["key"], partition=0, limits=DEFAULT_LIMITS, read_fields=load_compiled_fields()
            )
        )


def test_a_batch_of_too_many_records_is_refused() -> None:
    with pytest.raises(LimitExceededError, match="batch_records"):
        list(
            decode_to_arrow(
                [PlacedBatch(Cursor(0), encode_batch(MANY))],
                ["key"],
                partition=0,
                limits=Limits(batch_records=99),
                read_fields=plain_fields,
            )
        )


def test_a_slice_of_larger_columns_is_encoded_as_what_it_shows() -> None:
    headers = [[{"name": "a", "value": b"1"}], None, [{"name": "b", "value": None}, {"name": "c", "value": b"3"}], []]
    whole = RecordColumns(
        pa.array([10, 20, 30, 40], pa.timestamp("ms")),
        pa.array(["v0", "v1", None, "v3"]),
        pa.chunked_array([[b"k0", None], [b"k2", b"k3"]]),
        pa.array(headers, HEADER_LIST),
    )
    (encoded,) = load_encode_columns()(RecordColumns(*(column[1:] for column in whole if column is not None)))
    assert [record[:4] for record in decode_batch(encoded.batch, DEFAULT_LIMITS)] == [
        (None, b"v1", (), 20),
        (b"k2", None, [("b", None), ("c", b"3")], 30),
        (b"k3", b"v3", (), 40),
    ]


def test_columns_without_rows_make_no_batch() -> None:
    assert list(load_encode_columns()(RecordColumns(pa.array([], pa.int64()), pa.array([], pa.binary())))) == []
