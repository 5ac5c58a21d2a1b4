"""The produce response that is written by hand is, byte for byte, the one that the described message gives."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.wire.message_codec import Codec
from tailrace.wire.messages import produce
from tailrace.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tailrace.wire.produce_request import LoneBatch
from tailrace.wire.produce_response import (
    ProducedPartition,
    ProducedTopic,
    write_lone_refusal,
    write_lone_response,
    write_produce_response,
)

CODEC = Codec()
INT64 = st.integers(-1, 2**63 - 1)

partitions = st.builds(
    ProducedPartition,
    number=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 120),
    base_offset=INT64,
    append_time_ms=INT64,
    log_start_offset=INT64,
    error_message=st.none() | st.text(max_size=300),
)
topics = st.builds(ProducedTopic, name=st.text(max_size=300), topic_id=st.uuids(), partitions=st.lists(partitions, max_size=3))


lone_batches = st.builds(
    LoneBatch,
    version=st.integers(9, produce.API.highest),
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
@given(st.integers(produce.API.lowest, produce.API.highest), st.lists(topics, max_size=3))
def test_by_hand_and_by_description_are_the_same_bytes(version: int, produced: list[ProducedTopic]) -> None:
    expected = bytearray()
    message = ProduceResponse(responses=tuple(map(described, produced)))
    CODEC.write(message, version, produce.API.is_flexible(version), expected)
    assert write_produce_response(version, produced) == expected


def whole(asked: LoneBatch, partition: ProducedPartition) -> bytes:
    """With its head: size, correlation id, no tags."""
    body = write_produce_response(asked.version, [ProducedTopic(asked.topic, asked.topic_id, [partition])])
    head = asked.correlation_id.to_bytes(4, "big", signed=True) + bytes(1)
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@settings(max_examples=100, deadline=None)
@given(lone_batches, INT64, INT64, INT64, st.integers(1, 120), st.text(max_size=200))
def test_the_answer_to_a_lone_batch_is_the_same_with_its_head(
    asked: LoneBatch, base_offset: int, append_time: int, start: int, code: int, message: str
) -> None:
    stored = ProducedPartition(asked.partition, 0, base_offset, append_time, start)
    assert write_lone_response(asked, base_offset, append_time, start) == whole(asked, stored)
    refused = ProducedPartition(asked.partition, code, -1, -1, -1, message)
    assert write_lone_refusal(asked, code, message) == whole(asked, refused)
