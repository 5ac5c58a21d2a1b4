"""Any records survive the wire format, and the decoder rejects any other bytes."""

import contextlib
from struct import pack_into

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import TailraceError
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Record
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, check_batch
from tailrace.wire.compression import Compression, compress, decompress
from tailrace.wire.records import decode_batch, encode_batch, encoded_size_bound

some_bytes = st.none() | st.binary(max_size=200)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
records = st.builds(
    Record,
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(names, some_bytes), max_size=4),
    timestamp=st.integers(0, 1 << 42),
    offset=st.just(-1),
    cursor=st.just(-1),
)
codecs = st.sampled_from(list(Compression))


@given(st.lists(records, min_size=1, max_size=20), codecs)
def test_records_round_trip(sent: list[Record], codec: Compression) -> None:
    batch = encode_batch(sent, codec=codec)
    check_batch(batch)
    found = decode_batch(batch, DEFAULT_LIMITS)
    assert [record._replace(headers=list(record.headers), offset=Offset(-1)) for record in found] == sent


@given(st.lists(records, min_size=1, max_size=5))
def test_the_bound_of_a_records_size_holds(sent: list[Record]) -> None:
    assert len(encode_batch(sent)) - HEADER_BYTES <= sum(map(encoded_size_bound, sent))


@given(st.binary(max_size=2000), codecs)
def test_codecs_round_trip(data: bytes, codec: Compression) -> None:
    assert decompress(codec, compress(codec, data), 2000) == data


@settings(max_examples=400)
@given(st.lists(records, min_size=1, max_size=5), codecs, st.data())
def test_a_mutated_batch_is_decoded_or_rejected(sent: list[Record], codec: Compression, data: st.DataObject) -> None:
    batch = encode_batch(sent, codec=codec)
    for _ in range(data.draw(st.integers(1, 4), "changes")):
        place = data.draw(st.integers(CHECKED_FROM, len(batch) - 1), "place")
        batch[place] = data.draw(st.integers(0, 255), "byte")
    del batch[data.draw(st.integers(HEADER_BYTES, len(batch)), "cut") :]
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">I", batch, 17, crc32c(batch[CHECKED_FROM:]))
    try:
        check_batch(batch)
        found = decode_batch(batch, Limits(decompressed_batch_bytes=100_000))
    except TailraceError:
        return
    check_batch(encode_batch(found))


@settings(max_examples=300)
@given(
    st.binary(max_size=300),
    st.sampled_from([Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]),
    st.booleans(),
)
def test_no_bytes_break_a_decompressor(data: bytes, codec: Compression, keep_head: bool) -> None:
    if keep_head:
        data = bytes(compress(codec, b"abc" * 9))[:16] + data
    with contextlib.suppress(TailraceError):
        assert len(decompress(codec, data, 10_000)) <= 10_000
