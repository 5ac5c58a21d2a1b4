"""Patterns as topics over the handlers: found by name and by id, listed nowhere, read and never written."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.wire.message import NO_UUID
from tailrace.wire.messages.cluster import METADATA_API, MetadataRequest, MetadataRequestTopic
from tailrace.wire.messages.configs import DESCRIBE_CONFIGS_API, DescribeConfigsRequest, DescribeConfigsResource
from tailrace.wire.messages.fetch import (
    FETCH_API,
    LIST_OFFSETS_API,
    OFFSET_FOR_LEADER_EPOCH_API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.wire.messages.group_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_DELETE_API,
    OFFSET_FETCH_API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_RECORDS_API,
    DELETE_TOPICS_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from tests.support.aio import on_loop
from tests.support.batches import TIMESTAMP
from tests.support.brokers import append, raw
from tests.support.kafka import Asker, running_asker

INVALID_TOPIC = 17
PATTERN = "orders.>"


async def filled(asker: Asker) -> None:
    """Write records at the cursors 0 to 4; those at 1 and 3 match."""
    for name in ("orders.eu", "other"):
        await asker.broker.topics.create(name)
    for number in range(5):
        await append(asker.broker, raw(("other", "orders.eu")[number % 2], 0, b"%d" % number, timestamp=TIMESTAMP + number))


async def described(asker: Asker, *names: str) -> list[Any]:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return list((await asker.ask(METADATA_API, MetadataRequest(topics=topics))).topics)


async def id_of(asker: Asker, name: str = PATTERN) -> UUID:
    uuid: UUID = (await described(asker, name))[0].topic_id
    return uuid


@on_loop
async def test_a_pattern_is_described_by_name_and_id_and_not_among_all_topics() -> None:
    async with running_asker() as asker:
        await filled(asker)
        one, four = await described(asker, PATTERN, "orders.>@4")
        assert (one.error_code, len(one.partitions), len(four.partitions)) == (0, 1, 4)
        assert one.topic_id != four.topic_id
        assert await id_of(asker) == one.topic_id
        by_id = await asker.ask(
            METADATA_API, MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=four.topic_id),))
        )
        assert (by_id.topics[0].name, len(by_id.topics[0].partitions)) == ("orders.>@4", 4)
        every = await asker.ask(METADATA_API, MetadataRequest(topics=None))
        assert [topic.name for topic in every.topics] == ["orders.eu", "other"]
        wanted = tuple(DescribeTopicPartitionsTopic(name=name) for name in ("orders.>@4", "a.>.b"))
        request = DescribeTopicPartitionsRequest(topics=wanted)
        bad, good = (await asker.ask(DESCRIBE_TOPIC_PARTITIONS_API, request)).topics
        assert (bad.error_code, good.topic_id, len(good.partitions)) == (INVALID_TOPIC, four.topic_id, 4)


@pytest.mark.parametrize("name", ["orders.>.eu", "orders.>@0", "orders.>@65", "orders.>@x", "or*ders", "a..*", ">@"])
def test_an_invalid_pattern_is_an_invalid_topic(name: str) -> None:
    @on_loop
    async def run() -> None:
        async with running_asker() as asker:
            assert [topic.error_code for topic in await described(asker, name)] == [INVALID_TOPIC]
            assert list(asker.broker.topics) == []

    run()


@pytest.mark.parametrize("version", range(FETCH_API.lowest, FETCH_API.highest + 1))
def test_every_version_of_fetch_reads_a_pattern(version: int) -> None:
    @on_loop
    async def run() -> None:
        async with running_asker() as asker:
            await filled(asker)
            topic = FetchTopic(
                topic=PATTERN,
                topic_id=await id_of(asker),
                partitions=(FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20),),
            )
            response = await asker.ask(FETCH_API, FetchRequest(session_epoch=0, topics=(topic,), min_bytes=1), version)
            partition = response.responses[0].partitions[0]
            assert (partition.error_code, partition.high_watermark) == (0, 5)
            assert [int.from_bytes(partition.records[:8])] == [1]
            if version >= 7:
                # The session remembers the pattern and the position.
                again = FetchRequest(session_id=response.session_id, session_epoch=1, topics=(), min_bytes=0)
                news = await asker.ask(FETCH_API, again, version)
                assert news.error_code == 0
                assert len(news.responses) == 1

    run()


async def offset_of(asker: Asker, timestamp: int, partition: int = 0) -> tuple[int, int, int]:
    topic = ListOffsetsTopic(
        name="orders.>@2", partitions=(ListOffsetsPartition(partition_index=partition, timestamp=timestamp),)
    )
    response = await asker.ask(LIST_OFFSETS_API, ListOffsetsRequest(topics=(topic,)))
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


@on_loop
async def test_offsets_are_listed_by_edge_and_time() -> None:
    async with running_asker() as asker:
        await filled(asker)
        for partition in range(2):
            assert await offset_of(asker, -2, partition) == (0, 0, -1)
            assert await offset_of(asker, -1, partition) == (0, 5, -1)
            assert await offset_of(asker, TIMESTAMP + 2, partition) == (0, 3, TIMESTAMP + 3)
            assert await offset_of(asker, TIMESTAMP + 4, partition) == (0, -1, -1)
            assert await offset_of(asker, -3, partition) == (0, 3, TIMESTAMP + 3)
            assert await offset_of(asker, -5, partition) == (0, -1, -1)
            assert (await offset_of(asker, -7, partition))[0] == 35
        assert (await offset_of(asker, -1, 2))[0] == 3
        topic = OffsetForLeaderTopic(topic=PATTERN, partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),))
        response = await asker.ask(OFFSET_FOR_LEADER_EPOCH_API, OffsetForLeaderEpochRequest(topics=(topic,)))
        assert response.topics[0].partitions[0].end_offset == 5


@pytest.mark.parametrize("version", [2, 9, 10])
def test_a_group_commits_and_fetches_offsets_in_a_pattern(version: int) -> None:
    @on_loop
    async def run() -> None:
        async with running_asker() as asker:
            await filled(asker)
            by_id = version >= 10
            name, uuid = ("", await id_of(asker)) if by_id else (PATTERN, NO_UUID)
            commit = OffsetCommitRequest(
                group_id="g",
                topics=(
                    OffsetCommitRequestTopic(
                        name=name,
                        topic_id=uuid,
                        partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=4),),
                    ),
                ),
            )
            response = await asker.ask(OFFSET_COMMIT_API, commit, version)
            assert response.topics[0].partitions[0].error_code == 0
            wanted = OffsetFetchRequestTopics(name=name, topic_id=uuid, partition_indexes=(0,))
            for topics in ((wanted,), None):
                group = OffsetFetchRequestGroup(group_id="g", topics=topics)
                fetched = await asker.ask(OFFSET_FETCH_API, OffsetFetchRequest(groups=(group,)), max(8, version))
                (topic,) = fetched.groups[0].topics
                assert topic.partitions[0].committed_offset == 4
            gone = OffsetDeleteRequest(
                group_id="g",
                topics=(OffsetDeleteRequestTopic(name=PATTERN, partitions=(OffsetDeleteRequestPartition(partition_index=0),)),),
            )
            deleted = await asker.ask(OFFSET_DELETE_API, gone)
            assert deleted.topics[0].partitions[0].error_code == 0
            assert asker.broker.offsets.committed("g", PATTERN, 0) is None

    run()


@on_loop
async def test_a_pattern_can_not_be_written_to_or_changed() -> None:
    async with running_asker() as asker:
        await filled(asker)
        uuid = await id_of(asker)
        batch = bytes(raw(PATTERN, 0, b"x").batch)
        for version in (12, 13):
            data = TopicProduceData(name=PATTERN, topic_id=uuid, partition_data=(PartitionProduceData(index=0, records=batch),))
            produced = await asker.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), version)
            assert produced.responses[0].partition_responses[0].error_code == INVALID_TOPIC
        created = await asker.ask(
            CREATE_TOPICS_API, CreateTopicsRequest(topics=(CreatableTopic(name=PATTERN, num_partitions=1),))
        )
        assert created.topics[0].error_code == INVALID_TOPIC
        for state in (DeleteTopicState(name=PATTERN), DeleteTopicState(name=None, topic_id=uuid)):
            deleted = await asker.ask(DELETE_TOPICS_API, DeleteTopicsRequest(topics=(state,)))
            assert deleted.responses[0].error_code == INVALID_TOPIC
            assert "is a pattern" in deleted.responses[0].error_message
        records = DeleteRecordsTopic(name=PATTERN, partitions=(DeleteRecordsPartition(partition_index=0, offset=1),))
        trimmed = await asker.ask(DELETE_RECORDS_API, DeleteRecordsRequest(topics=(records,)))
        assert trimmed.topics[0].partitions[0].error_code == INVALID_TOPIC
        grown = await asker.ask(
            CREATE_PARTITIONS_API, CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=PATTERN, count=3),))
        )
        assert grown.results[0].error_code == INVALID_TOPIC
        configs = await asker.ask(
            DESCRIBE_CONFIGS_API,
            DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=2, resource_name=PATTERN),)),
        )
        assert configs.results[0].error_code == INVALID_TOPIC
        assert [live.topic.name for live in asker.broker.topics] == ["orders.eu", "other"]
