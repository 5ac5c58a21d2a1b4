"""The fast paths for produce read and write what the message codec does, or leave a request to the codec."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import MalformedMessageError
from tailrace.wire.fast_produce import (
    ProducedPartition,
    ProducedTopic,
    SingleBatchRequest,
    read_single_batch_request,
    write_produce_response,
    write_single_batch_rejection,
    write_single_batch_response,
)
from tailrace.wire.message import NO_UUID
from tailrace.wire.message_codec import MessageCodec, MessageSource, skip_tags
from tailrace.wire.messages.produce import (
    PRODUCE_API,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.support.kafka import frame

CODEC = MessageCodec()
FLEXIBLE_SINCE = 9
IDS_SINCE = 13
CORRELATION_ID = 77
HEAD_BYTES = 10

versions = st.integers(PRODUCE_API.lowest, PRODUCE_API.highest)
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
    source = MessageSource(memoryview(received), HEAD_BYTES + id_bytes)
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
    data = frame(PRODUCE_API, version, request, CORRELATION_ID)
    for at, byte in damage:
        data[at % len(data)] = byte
    for received in (data, data[: len(data) - cut], data + bytes(cut)):
        lone = read_single_batch_request(received)
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
    st.integers(FLEXIBLE_SINCE, PRODUCE_API.highest),
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
    expected = SingleBatchRequest(version, CORRELATION_ID, -1, topic.name, topic.topic_id, 3, records)
    assert read_single_batch_request(frame(PRODUCE_API, version, request, CORRELATION_ID)) == expected


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
    assert [read_single_batch_request(frame(PRODUCE_API, 9, other)) for other in others] == [None] * len(others)
    alike = ProduceRequest(acks=-1, topic_data=(topic,))
    assert read_single_batch_request(frame(PRODUCE_API, FLEXIBLE_SINCE - 1, alike)) is None
    assert read_single_batch_request(frame(PRODUCE_API, FLEXIBLE_SINCE, alike)) is not None


INT64 = st.integers(-1, 2**63 - 1)

response_partitions = st.builds(
    ProducedPartition,
    number=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 120),
    base_offset=INT64,
    append_time_ms=INT64,
    log_start_offset=INT64,
    error_message=st.none() | st.text(max_size=300),
)
response_topics = st.builds(
    ProducedTopic, name=st.text(max_size=300), topic_id=st.uuids(), partitions=st.lists(response_partitions, max_size=3)
)


lone_batches = st.builds(
    SingleBatchRequest,
    version=st.integers(9, PRODUCE_API.highest),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    acks=st.just(-1),
    topic=st.text(alphabet="abc.-", max_size=126),
    topic_id=st.uuids(),
    partition=st.integers(0, 2**31 - 1),
    records=st.just(b""),
)


def described(topic: ProducedTopic) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=tuple(
            PartitionProduceResponse(
                index=each.number,
                error_code=each.error_code,
                base_offset=each.base_offset,
                log_append_time_ms=each.append_time_ms,
                log_start_offset=each.log_start_offset,
                error_message=each.error_message,
            )
            for each in topic.partitions
        ),
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(PRODUCE_API.lowest, PRODUCE_API.highest), st.lists(response_topics, max_size=3))
def test_by_hand_and_by_description_are_the_same_bytes(version: int, produced: list[ProducedTopic]) -> None:
    expected = bytearray()
    message = ProduceResponse(responses=tuple(map(described, produced)))
    CODEC.write(message, version, PRODUCE_API.is_flexible(version), expected)
    assert write_produce_response(version, produced) == expected


def whole(asked: SingleBatchRequest, partition: ProducedPartition) -> bytes:
    """Add the head of a response: size, correlation id, no tagged fields."""
    body = write_produce_response(asked.version, [ProducedTopic(asked.topic, asked.topic_id, [partition])])
    head = asked.correlation_id.to_bytes(4, "big", signed=True) + bytes(1)
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@settings(max_examples=100, deadline=None)
@given(lone_batches, INT64, INT64, INT64, st.integers(1, 120), st.text(max_size=200))
def test_the_answer_to_a_lone_batch_is_the_same_with_its_head(
    asked: SingleBatchRequest, base_offset: int, append_time: int, start: int, code: int, message: str
) -> None:
    stored = ProducedPartition(asked.partition, 0, base_offset, append_time, start)
    assert write_single_batch_response(asked, base_offset, append_time, start) == whole(asked, stored)
    refused = ProducedPartition(asked.partition, code, -1, -1, -1, message)
    assert write_single_batch_rejection(asked, code, message) == whole(asked, refused)
