"""Machine code and Python find the same last offsets and keep the same records."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.record import Record
from tailrace.wire.batch import HEADER_BYTES, read_header, with_base_offset
from tailrace.wire.compaction import LatestOffsets, PlainLatestOffsets
from tailrace.wire.fast_compaction import CompiledLatestOffsets, compile_compaction, load_compaction
from tailrace.wire.records import encode_batch, record_bytes

HERE, THERE = PartitionId(TopicId(1), 0), PartitionId(TopicId(1), 1)

keys = st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"a", b"b"])
batches = st.lists(
    st.lists(st.tuples(keys, st.none() | st.binary(max_size=5), st.integers(0, 3_000)), min_size=1, max_size=8), max_size=6
)


def compiled(most_bytes: int = MIB, keys: int = 10_000) -> CompiledLatestOffsets:
    load = load_compaction()
    if load is None:
        compile_compaction()
        load = load_compaction()
    assert load is not None
    return load(most_bytes, keys)


def outcome(latest: LatestOffsets, made: list[bytes], stop: int, expired_end: int) -> list[object]:
    found: list[object] = []
    for partition in (HERE, THERE):
        for batch in made[: len(made) // (1 + partition.number)]:
            header = read_header(batch)
            found.append(latest.note(partition, header, record_bytes(batch, header, DEFAULT_LIMITS), stop))
    for partition in (HERE, THERE):
        for batch in made:
            header = read_header(batch)
            found.append(latest.kept(partition, header, record_bytes(batch, header, DEFAULT_LIMITS), expired_end))
    return found


@given(batches, st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_both_keep_the_same(drawn: list[list[tuple[bytes | None, bytes | None, int]]], stop: int, expired_end: int) -> None:
    made: list[bytes] = []
    offset = 0
    for each in drawn:
        made.append(bytes(with_base_offset(encode_batch([Record(key, value, (), time) for key, value, time in each]), offset)))
        offset += len(each)
    assert outcome(compiled(), made, stop, expired_end) == outcome(PlainLatestOffsets(MIB), made, stop, expired_end)


@given(st.binary(max_size=60), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_no_bytes_crash_it(body: bytes, count: int) -> None:
    head = read_header(bytes(with_base_offset(encode_batch([Record(b"k", b"v")] * count), 0))[:HEADER_BYTES])
    latest = compiled()
    try:
        latest.note(HERE, head, body, 100)
        kept = latest.kept(HERE, head, body, 0)
    except CorruptBatchError:
        return
    assert all(0 <= begin < end <= len(body) for begin, end in kept.spans)


def test_a_full_table_says_so_and_keeps_what_it_has() -> None:
    for latest in (compiled(most_bytes=1, keys=1_000_000), PlainLatestOffsets(200 * 768)):
        noted = 0
        while True:
            batch = bytes(with_base_offset(encode_batch([Record(b"%d" % (noted + at), b"v") for at in range(8)]), noted))
            header = read_header(batch)
            if not latest.note(HERE, header, batch[HEADER_BYTES:], 1 << 40):
                break
            noted += 8
        assert noted == 768
        assert latest.kept(HERE, header, batch[HEADER_BYTES:], 0).records == 8
