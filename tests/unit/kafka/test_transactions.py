"""Transactions over the handlers, for clients of both transaction protocols."""

from uuid import UUID

import pytest

from tailrace.model.ids import Offset
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersionsRequest
from tailrace.wire.messages.fetch import (
    FETCH_API,
    LIST_OFFSETS_API,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tailrace.wire.messages.group_offsets import (
    OFFSET_FETCH_API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.messages.transactions import (
    ADD_OFFSETS_TO_TXN_API,
    ADD_PARTITIONS_TO_TXN_API,
    DESCRIBE_PRODUCERS_API,
    DESCRIBE_TRANSACTIONS_API,
    END_TXN_API,
    INIT_PRODUCER_ID_API,
    LIST_TRANSACTIONS_API,
    TXN_OFFSET_COMMIT_API,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribedTransactionTopic,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.aio import on_loop
from tests.support.brokers import options
from tests.support.kafka import Asker, running_asker
from tests.support.transactions import Producer

FENCED, OLD_EPOCH, WRONG_STATE, WRONG_ID, UNSTABLE, UNKNOWN_TOPIC, NOT_ATTEMPTED = 90, 47, 48, 49, 88, 3, 55
INIT_VERSIONS = range(6)


async def init(asker: Asker, version: int = 5, **fields: object) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000, **fields)  # type: ignore[arg-type]
    response: InitProducerIdResponse = await asker.ask(INIT_PRODUCER_ID_API, request, version)
    return response


async def producer_of(asker: Asker, *, newer: bool) -> Producer:
    """A producer that uses the Produce version of its transaction protocol."""
    given = await init(asker)
    assert given.error_code == 0
    return Producer(asker.broker, "tx", ProducerIdentity(given.producer_id, given.producer_epoch), newer=newer)  # type: ignore[arg-type]


async def add(asker: Asker, producer: Producer, version: int, *partitions: int) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.identity.producer_id,
        v3_and_below_producer_epoch=producer.identity.epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=partitions),),
    )
    response = await asker.ask(ADD_PARTITIONS_TO_TXN_API, request, version)
    (topic,) = response.results_by_topic_v3_and_below
    assert [each.partition_index for each in topic.results_by_partition] == list(partitions)
    return [each.partition_error_code for each in topic.results_by_partition]


async def send(asker: Asker, producer: Producer, version: int, *values: bytes) -> int:
    batch = producer.batch(0, *values).batch
    data = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=bytes(batch)),))
    response = await asker.ask(PRODUCE_API, ProduceRequest(transactional_id="tx", acks=-1, topic_data=(data,)), version)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def end(asker: Asker, producer: Producer, version: int, committed: bool) -> EndTxnResponse:
    producer_id, epoch = producer.identity
    request = EndTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=committed)
    response: EndTxnResponse = await asker.ask(END_TXN_API, request, version)
    return response


async def read(asker: Asker, isolation_level: int = 1, version: int = 12) -> FetchPartitionData:
    wanted = FetchTopic(topic="t", partitions=(FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20),))
    response = await asker.ask(FETCH_API, FetchRequest(topics=(wanted,), isolation_level=isolation_level), version)
    partition: FetchPartitionData = response.responses[0].partitions[0]
    return partition


async def commit_offset(asker: Asker, producer: Producer, version: int, offset: int, **member: object) -> int:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="note")
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
        **member,  # type: ignore[arg-type]
    )
    response = await asker.ask(TXN_OFFSET_COMMIT_API, request, version)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def fetch_offset(asker: Asker, *, every: bool = False, require_stable: bool = True) -> OffsetFetchResponsePartitions:
    topics = None if every else (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    response = await asker.ask(OFFSET_FETCH_API, OffsetFetchRequest(groups=(group,), require_stable=require_stable), 9)
    partition: OffsetFetchResponsePartitions = response.groups[0].topics[0].partitions[0]
    return partition


@pytest.mark.parametrize("version", range(5))
@on_loop
async def test_classic_clients_keep_their_epoch(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        producer = await producer_of(asker, newer=False)
        for committed in (True, False):
            assert await add(asker, producer, min(version, 3), 0) == [0]
            assert await send(asker, producer, 11, b"a") == 0
            assert (await end(asker, producer, version, committed)).error_code == 0
        partition = await read(asker)
        assert [(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()] == [
            (producer.identity.producer_id, 2)
        ]
        assert asker.broker.transaction_queries.describe("tx").producer == producer.identity


@on_loop
async def test_newer_clients_add_by_writing_and_get_a_new_epoch_with_the_end() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        producer = await producer_of(asker, newer=True)
        assert await send(asker, producer, 12, b"a") == 0
        assert await commit_offset(asker, producer, 5, 1) == 0
        assert (await read(asker)).last_stable_offset == 0
        answer = await end(asker, producer, 5, True)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer.identity.producer_id, 1)
        again = await end(asker, producer, 5, True)
        assert (again.error_code, again.producer_epoch) == (0, 1)
        assert (await read(asker)).last_stable_offset == 2
        assert (await fetch_offset(asker)).committed_offset == 1


@on_loop
async def test_api_versions_announces_an_epoch_for_each_transaction() -> None:
    async with running_asker() as asker:
        told = await asker.ask(API_VERSIONS_API, ApiVersionsRequest(), 4)
        assert ("transaction.version", 2) in [(each.name, each.max_version_level) for each in told.finalized_features]
        assert ("transaction.version", 2) in [(each.name, each.max_version) for each in told.supported_features]
        assert told.finalized_features_epoch == 0


@pytest.mark.parametrize("version", INIT_VERSIONS)
@on_loop
async def test_each_init_gives_a_new_epoch(version: int) -> None:
    async with running_asker() as asker:
        first, second = await init(asker, version), await init(asker, version)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


@pytest.mark.parametrize(("version", "code"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
@on_loop
async def test_a_fenced_producer_that_asks_for_its_next_epoch_is_rejected(version: int, code: int) -> None:
    async with running_asker() as asker:
        given = await init(asker)
        await init(asker)
        answer = await init(asker, version, producer_id=given.producer_id, producer_epoch=given.producer_epoch)
        assert (answer.error_code, answer.producer_id) == (code, -1)


@pytest.mark.parametrize("version", range(6))
@on_loop
async def test_a_fenced_producer_gets_an_error_code_that_its_version_knows(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        producer = await producer_of(asker, newer=False)
        await init(asker)
        fenced = FENCED if version >= 2 else OLD_EPOCH
        assert (await end(asker, producer, version, True)).error_code == fenced
        assert await commit_offset(asker, producer, version, 0) == (FENCED if version >= 3 else OLD_EPOCH)
        assert await send(asker, producer, 11, b"a") == OLD_EPOCH
        if version <= 3:
            assert await add(asker, producer, version, 0) == [fenced]
        if version <= 4:
            request = AddOffsetsToTxnRequest(
                transactional_id="tx", producer_id=producer.identity.producer_id, producer_epoch=0, group_id="g"
            )
            assert (await asker.ask(ADD_OFFSETS_TO_TXN_API, request, version)).error_code == fenced


@on_loop
async def test_wrong_requests_are_rejected_with_kafkas_codes() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        producer = await producer_of(asker, newer=False)
        assert await add(asker, producer, 3, 0, 7) == [NOT_ATTEMPTED, UNKNOWN_TOPIC]
        assert await send(asker, producer, 11, b"a") == WRONG_STATE
        assert (await end(asker, producer, 4, True)).error_code == WRONG_STATE
        assert await commit_offset(asker, producer, 4, 0) == WRONG_STATE
        producer.identity = producer.identity._replace(producer_id=99)  # type: ignore[arg-type]
        assert await add(asker, producer, 3, 0) == [WRONG_ID]
        bad = await asker.ask(INIT_PRODUCER_ID_API, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 5)
        assert bad.error_code == 42
        bad = await asker.ask(INIT_PRODUCER_ID_API, InitProducerIdRequest(transactional_id="x"), 5)
        assert bad.error_code == 50


@on_loop
async def test_pending_offsets_are_unstable_for_those_who_ask_for_stable_ones() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        producer = await producer_of(asker, newer=True)
        assert await commit_offset(asker, producer, 5, 0) == 0
        assert (await fetch_offset(asker)).error_code == UNSTABLE
        unstable = await fetch_offset(asker, require_stable=False)
        assert (unstable.error_code, unstable.committed_offset) == (0, -1)
        producer.identity = producer.identity._replace(epoch=(await end(asker, producer, 5, True)).producer_epoch)
        stable = await fetch_offset(asker)
        assert (stable.error_code, stable.committed_offset, stable.metadata) == (0, 0, "note")
        await commit_offset(asker, producer, 5, 0)
        assert (await fetch_offset(asker, every=True)).error_code == UNSTABLE


@on_loop
async def test_a_member_of_another_generation_commits_nothing() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        producer = await producer_of(asker, newer=True)
        assert await commit_offset(asker, producer, 5, 0, member_id="gone", generation_id=3) == 22
        assert asker.broker.transaction_queries.describe("tx").state == "Empty"


@on_loop
async def test_latest_means_the_last_stable_offset_to_readers_of_committed_records() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t", options=options())
        producer = await producer_of(asker, newer=True)
        await send(asker, producer, 12, b"a")
        found = []
        for isolation_level in (0, 1):
            wanted = ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),))
            response = await asker.ask(
                LIST_OFFSETS_API, ListOffsetsRequest(topics=(wanted,), isolation_level=isolation_level), 7
            )
            found.append(response.topics[0].partitions[0].offset)
        assert found == [1, 0]
        assert (await read(asker, 0)).aborted_transactions is None
        assert (await read(asker, 0)).last_stable_offset == 0


@on_loop
async def test_operators_can_look_at_transactions_and_producers() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        producer = await producer_of(asker, newer=True)
        await send(asker, producer, 12, b"a", b"b")
        producer_id = producer.identity.producer_id
        listed = await asker.ask(LIST_TRANSACTIONS_API, ListTransactionsRequest(state_filters=("Ongoing", "Odd")), 1)
        assert [(each.transactional_id, each.transaction_state) for each in listed.transaction_states] == [("tx", "Ongoing")]
        assert listed.unknown_state_filters == ("Odd",)
        described = await asker.ask(DESCRIBE_TRANSACTIONS_API, DescribeTransactionsRequest(transactional_ids=("tx", "no")))
        found, missing = described.transaction_states
        assert (found.transaction_state, found.producer_id, found.transaction_timeout_ms) == ("Ongoing", producer_id, 60_000)
        assert found.topics == (DescribedTransactionTopic(topic="t", partitions=(0,)),)
        assert (missing.transactional_id, missing.error_code) == ("no", 105)
        wanted = DescribeProducersTopic(name="t", partition_indexes=(0, 1, 2))
        answer = await asker.ask(DESCRIBE_PRODUCERS_API, DescribeProducersRequest(topics=(wanted,)))
        here, nobody, unknown = answer.topics[0].partitions
        (state,) = here.active_producers
        assert (state.producer_id, state.last_sequence, state.current_txn_start_offset) == (producer_id, 1, Offset(0))
        assert (nobody.active_producers, unknown.error_code) == ((), UNKNOWN_TOPIC)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, ["billing-1", "billing-2", "orders"]),
        ("", ["billing-1", "billing-2", "orders"]),
        ("billing-[0-9]", ["billing-1", "billing-2"]),
        ("billing", []),
        ("orders|.*-2", ["billing-2", "orders"]),
    ],
)
@on_loop
async def test_transactions_are_listed_by_a_pattern_of_the_whole_id(pattern: str | None, expected: list[str]) -> None:
    async with running_asker() as asker:
        for name in ("orders", "billing-1", "billing-2"):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            assert (await asker.ask(INIT_PRODUCER_ID_API, request, 5)).error_code == 0
        listed = await asker.ask(LIST_TRANSACTIONS_API, ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert sorted(each.transactional_id for each in listed.transaction_states) == expected


@on_loop
async def test_a_pattern_that_re2_does_not_take_is_an_invalid_regular_expression() -> None:
    async with running_asker() as asker:
        for pattern in ("(", "(?=a)", r"(a)\1"):
            listed = await asker.ask(LIST_TRANSACTIONS_API, ListTransactionsRequest(transactional_id_pattern=pattern), 2)
            assert (listed.error_code, listed.transaction_states) == (128, ())


@on_loop
async def test_offsets_in_a_transaction_name_topics_by_id() -> None:
    async with running_asker() as asker:
        topic = await asker.broker.topics.create("t", 2)
        producer = await producer_of(asker, newer=True)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            topics=(
                TxnOffsetCommitRequestTopic(topic_id=UUID(int=5), partitions=(partition,)),
                TxnOffsetCommitRequestTopic(topic_id=topic.uuid, partitions=(partition,)),
            ),
        )
        response = await asker.ask(TXN_OFFSET_COMMIT_API, request, 6)
        assert [(each.topic_id, each.partitions[0].error_code) for each in response.topics] == [
            (UUID(int=5), 100),
            (topic.uuid, 0),
        ]
        assert (await end(asker, producer, 5, committed=True)).error_code == 0
        assert (await fetch_offset(asker)).committed_offset == 7
