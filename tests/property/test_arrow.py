"""Arrow columns hold what the plain decoder finds in any records, by the general and by the fast path."""

import json
from collections.abc import Sequence
from struct import pack_into

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Headers, Record
from tailrace.wire.arrow_decoding import HEADER_LIST, RECORD_COLUMNS, ReadFields, decode_to_arrow, plain_fields
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, check_batch, with_base_offset
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.compression import Compression
from tailrace.wire.fast_arrow_decoding import load_compiled_fields
from tailrace.wire.fast_arrow_encoding import RecordColumns, load_encode_columns
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.plain_encoding import encode_plain

COMPILED = load_compiled_fields()
ENCODE = load_encode_columns()
BOTH = pytest.mark.parametrize("read_fields", [COMPILED, plain_fields], ids=["compiled", "plain"])

some_bytes = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.just(b"x" * 200)
names = st.sampled_from(["op", "source_table", "message_id"]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
records = st.builds(
    Record,
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(names, some_bytes), max_size=4),
    timestamp=st.integers(-5, 1 << 42) | st.integers(-(1 << 62), (1 << 62) - 1),
)
batches = st.tuples(st.lists(records, min_size=1, max_size=12), st.sampled_from(list(Compression)), st.booleans())


@settings(deadline=None, max_examples=50)
@given(st.lists(batches, min_size=1, max_size=4))
@BOTH
def test_columns_hold_what_the_decoder_finds(
    read_fields: ReadFields, sent: Sequence[tuple[list[Record], Compression, bool]]
) -> None:
    stored = _stored(sent)
    found = [record for cursor, batch in stored for record in decode_batch(batch, DEFAULT_LIMITS, cursor=cursor)]
    table = pa.Table.from_batches(
        decode_to_arrow(stored, list(RECORD_COLUMNS), partition=7, limits=DEFAULT_LIMITS, read_fields=read_fields)
    )
    table.validate(full=True)
    assert table.column("partition").to_pylist() == [7] * len(found)
    assert table.column("offset").to_pylist() == [record.offset for record in found]
    assert table.column("cursor").to_pylist() == [record.cursor for record in found]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [record.timestamp for record in found]
    assert table.column("key_bytes").to_pylist() == [record.key for record in found]
    assert table.column("value_bytes").to_pylist() == [record.value for record in found]
    assert table.column("key").to_pylist() == [_shown(record.key) for record in found]
    assert table.column("value").to_pylist() == [_shown(record.value) for record in found]
    assert table.column("op").to_pylist() == [_shown(_first("op", record.headers)) for record in found]
    assert table.column("message_id").to_pylist() == [_shown(_first("message_id", record.headers)) for record in found]
    assert [[(pair["name"], pair["value"]) for pair in row] for row in table.column("header_list").to_pylist()] == [
        list(record.headers) for record in found
    ]
    assert [json.loads(text) for text in table.column("headers").to_pylist()] == [
        _as_object(record.headers) for record in found
    ]


@settings(deadline=None, max_examples=50)
@given(st.lists(batches, min_size=1, max_size=3))
def test_both_ways_give_equal_columns(sent: Sequence[tuple[list[Record], Compression, bool]]) -> None:
    compiled, plain = (
        pa.Table.from_batches(
            decode_to_arrow(_stored(sent), list(RECORD_COLUMNS), partition=0, limits=DEFAULT_LIMITS, read_fields=read_fields)
        )
        for read_fields in (COMPILED, plain_fields)
    )
    assert compiled.equals(plain)


@settings(max_examples=200, deadline=None)
@given(st.lists(records, min_size=1, max_size=5), st.sampled_from(list(Compression)), st.data())
def test_a_mutated_batch_is_decoded_as_the_decoder_does_or_rejected(
    sent: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = encode_batch(sent, codec=codec)
    for _ in range(data.draw(st.integers(1, 4), "changes")):
        batch[data.draw(st.integers(CHECKED_FROM, len(batch) - 1), "place")] = data.draw(st.integers(0, 255), "byte")
    del batch[data.draw(st.integers(HEADER_BYTES, len(batch)), "cut") :]
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">I", batch, 17, crc32c(batch[CHECKED_FROM:]))
    limits = Limits(decompressed_batch_bytes=100_000)
    try:
        check_batch(batch)
        expected = decode_batch(batch, limits)
    except TailraceError:
        expected = None
    try:
        check_batch(batch)
        found = list(
            decode_to_arrow(
                [PlacedBatch(Cursor(0), batch)], ["timestamp", "key_bytes"], partition=0, limits=limits, read_fields=COMPILED
            )
        )
    except TailraceError:
        assert expected is None
        return
    assert expected is not None
    assert found[0].column("key_bytes").to_pylist() == [record.key for record in expected]
    assert found[0].column("timestamp").cast(pa.int64()).to_pylist() == [record.timestamp for record in expected]


def _stored(sent: Sequence[tuple[list[Record], Compression, bool]]) -> list[PlacedBatch]:
    """Return batches with consecutive offsets, and with cursors that have gaps."""
    stored = []
    offset, cursor = 100, 1_000
    for batch_records, codec, has_append_time in sent:
        encoded = encode_batch(batch_records, codec=codec, append_time=1_234_567 if has_append_time else None)
        stored.append(PlacedBatch(Cursor(cursor), with_base_offset(encoded, offset)))
        offset += len(batch_records)
        cursor += len(batch_records) + 3
    return stored


def _first(name: str, headers: Headers) -> bytes | None:
    return dict(reversed(list(headers))).get(name)


def _as_object(headers: Headers) -> dict[str, object]:
    values = {name: [_shown(value) for other, value in headers if other == name] for name, _ in headers}
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}


def _shown(field: bytes | None) -> str | None:
    if field is None:
        return None
    try:
        return field.decode()
    except UnicodeDecodeError:
        return "\\x" + field.hex()


@settings(deadline=None, max_examples=60)
@given(st.lists(records, min_size=1, max_size=30), st.sampled_from(list(Compression)), st.integers(1, 400), st.integers(1, 12))
def test_encoding_gives_the_bytes_of_the_plain_encoder(
    sent: list[Record], codec: Compression, most_bytes: int, most_records: int
) -> None:
    columns = RecordColumns(
        pa.array([record.timestamp for record in sent]),
        pa.array([record.value for record in sent], pa.binary()),
        pa.array([record.key for record in sent], pa.binary()),
        pa.array([[{"name": name, "value": value} for name, value in record.headers] for record in sent], HEADER_LIST),
    )
    ways = [
        list(encode(columns, codec=codec, most_bytes=most_bytes, most_records=most_records))
        for encode in (ENCODE, encode_plain)
    ]
    assert ways[0] == ways[1]
    found = []
    for batch, count, max_timestamp in ways[0]:
        header = check_batch(batch)
        assert (header.records, header.max_timestamp) == (count, max_timestamp)
        decoded = decode_batch(batch, DEFAULT_LIMITS)
        assert len(decoded) <= most_records
        assert len(decoded) == 1 or codec or len(batch) - HEADER_BYTES <= most_bytes
        found += decoded
    assert [(record.key, record.value, list(record.headers), record.timestamp) for record in found] == [
        (record.key, record.value, record.headers, record.timestamp) for record in sent
    ]
