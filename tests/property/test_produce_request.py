"""The short way to read a produce request gives what the long way gives, or leaves the request to the long way."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import MalformedMessageError
from tailrace.wire.message import NO_UUID
from tailrace.wire.message_codec import Codec
from tailrace.wire.message_fields import Source, skip_tags
from tailrace.wire.messages import produce
from tailrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.produce_request import LoneBatch, read_lone_batch
from tests.support.kafka import frame

CODEC = Codec()
FLEXIBLE_SINCE = 9
IDS_SINCE = 13
CORRELATION_ID = 77
HEAD_BYTES = 10

versions = st.integers(produce.API.lowest, produce.API.highest)
partitions = st.builds(
    PartitionProduceData, index=st.integers(0, 2**31 - 1), records=st.none() | st.binary(max_size=300) | st.just(bytes(20_000))
)
topics = st.builds(
    TopicProduceData,
    name=st.text(max_size=200),
    topic_id=st.uuids(),
    partition_data=st.lists(partitions, min_size=1, max_size=2).map(tuple),
)
requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | st.text(max_size=20),
    acks=st.integers(-1, 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    topic_data=st.lists(topics, min_size=1, max_size=2).map(tuple),
)
damages = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


def read_the_long_way(received: bytearray, version: int) -> ProduceRequest | None:
    id_bytes = max(0, int.from_bytes(received[8:HEAD_BYTES], "big", signed=True))
    source = Source(memoryview(received), HEAD_BYTES + id_bytes)
    try:
        skip_tags(source)
        request = CODEC.read(ProduceRequest, version, True, source)
    except (MalformedMessageError, IndexError):
        return None
    return request if source.at == len(received) else None


@settings(max_examples=300, deadline=None)
@given(versions, requests, damages, st.integers(0, 40))
def test_what_the_short_way_reads_is_what_the_long_way_reads(
    version: int, request: ProduceRequest, damage: list[tuple[int, int]], cut: int
) -> None:
    data = frame(produce.API, version, request, CORRELATION_ID)
    for at, byte in damage:
        data[at % len(data)] = byte
    for received in (data, data[: len(data) - cut], data + bytes(cut)):
        lone = read_lone_batch(received)
        if lone is None:
            continue
        long = read_the_long_way(received, lone.version)
        assert long is not None
        assert long.transactional_id is None
        (topic,) = long.topic_data
        (partition,) = topic.partition_data
        found = (long.acks, topic.name, topic.topic_id, partition.index, bytes(partition.records or b""))
        assert found == (lone.acks, lone.topic, lone.topic_id, lone.partition, bytes(lone.records))
        assert lone.correlation_id == int.from_bytes(received[4:8], "big", signed=True)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(FLEXIBLE_SINCE, produce.API.highest),
    st.text(max_size=30),
    st.uuids(),
    st.binary(max_size=300) | st.integers(0, 3_000_000).map(bytes),
)
def test_one_batch_for_one_partition_takes_the_short_way(version: int, name: str, topic_id: UUID, records: bytes) -> None:
    by_id = version >= IDS_SINCE
    topic = TopicProduceData(
        name="" if by_id else name,
        topic_id=topic_id if by_id else NO_UUID,
        partition_data=(PartitionProduceData(index=3, records=records),),
    )
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=(topic,))
    expected = LoneBatch(version, CORRELATION_ID, -1, topic.name, topic.topic_id, 3, records)
    assert read_lone_batch(frame(produce.API, version, request, CORRELATION_ID)) == expected


def test_requests_of_another_kind_are_left_to_the_long_way() -> None:
    partition = PartitionProduceData(index=0, records=b"records")
    empty = PartitionProduceData(index=0, records=None)
    topic = TopicProduceData(name="t", partition_data=(partition,))
    others = [
        ProduceRequest(acks=-1, topic_data=(topic, topic)),
        ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t", partition_data=(partition, partition)),)),
        ProduceRequest(acks=-1, topic_data=(topic,), transactional_id="writer"),
        ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t", partition_data=(empty,)),)),
    ]
    assert [read_lone_batch(frame(produce.API, 9, other)) for other in others] == [None] * len(others)
    alike = ProduceRequest(acks=-1, topic_data=(topic,))
    assert read_lone_batch(frame(produce.API, FLEXIBLE_SINCE - 1, alike)) is None
    assert read_lone_batch(frame(produce.API, FLEXIBLE_SINCE, alike)) is not None
