"""The short way to read a produce request gives the very request that the long way gives, or leaves it to the long way."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import MalformedMessageError
from tailrace.wire.message import NO_UUID, Message
from tailrace.wire.message_codec import Codec
from tailrace.wire.message_fields import Source
from tailrace.wire.messages import produce
from tailrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.produce_request import read_lone_batch

LONG = Codec()
SHORT = Codec({ProduceRequest: read_lone_batch})
IDS_SINCE = 13

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


def written(request: Message, version: int) -> bytearray:
    out = bytearray()
    LONG.write(request, version, produce.API.is_flexible(version), out)
    return out


def read(codec: Codec, data: bytearray, version: int) -> tuple[ProduceRequest, int] | str:
    source = Source(memoryview(data))
    try:
        return codec.read(ProduceRequest, version, produce.API.is_flexible(version), source), source.at
    except MalformedMessageError as error:
        return str(error)


@settings(max_examples=200, deadline=None)
@given(versions, requests, damages, st.integers(0, 40))
def test_both_ways_read_the_same_whatever_comes(
    version: int, request: ProduceRequest, damage: list[tuple[int, int]], cut: int
) -> None:
    data = written(request, version)
    for at, byte in damage:
        data[at % len(data)] = byte
    for received in (data, data[: len(data) - cut], data + bytes(cut)):
        assert read(SHORT, received, version) == read(LONG, received, version)


@settings(max_examples=50, deadline=None)
@given(st.integers(9, produce.API.highest), st.text(max_size=30), st.uuids(), st.binary(max_size=300))
def test_one_batch_for_one_partition_takes_the_short_way(version: int, name: str, topic_id: UUID, records: bytes) -> None:
    topic = TopicProduceData(
        name="" if version >= IDS_SINCE else name,
        topic_id=topic_id if version >= IDS_SINCE else NO_UUID,
        partition_data=(PartitionProduceData(index=3, records=records),),
    )
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=(topic,))
    assert read_lone_batch(Source(memoryview(written(request, version))), version) == request
