"""What services of the broker check by themselves, and what they do for nobody and check nothing for."""

import pytest

from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.broker.security.principals import act_as, stop_acting
from tailrace.model.consumer_group import JOINING_EPOCH, ConsumerGroupDescription, ConsumerHeartbeat
from tailrace.model.errors import (
    ForbiddenError,
    GroupForbiddenError,
    ReadOnlyTopicError,
    TailraceError,
    TopicForbiddenError,
    UnknownTopicError,
)
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.pipeline import MarkMove
from tailrace.model.queue import ReceiveRequest
from tailrace.model.record import Message, RawBatch, Record
from tailrace.model.security import Grant, NamePattern, Operation, Principal, ResourceKind
from tailrace.model.topic import TopicOptions
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.sources import define_source
from tests.unit.broker.security.test_live_revocation import SECURED

ALICE = Principal("alice", "192.0.2.1")
BATCH = bytes(encode_batch([Record(None, b"x", (), 1_700_000_000_000)]))


def grant(operation: Operation, kind: ResourceKind, name: str, pattern: NamePattern = "literal") -> Grant:
    return Grant(principal="alice", operation=operation, kind=kind, name=name, pattern=pattern)


@on_loop
async def test_a_topic_is_known_to_permissions_by_its_name_and_not_by_its_alias() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.topics.create("secret", alias="open")
        await broker.grants.add([grant("consume", "topic", "open")])
        assert not broker.topics.allows(ALICE, "consume", "open")
        await broker.grants.add([grant("consume", "topic", "secret")])
        assert broker.topics.allows(ALICE, "consume", "open")
        act_as(ALICE)
        with pytest.raises(TopicForbiddenError, match="'open'") as raised:
            broker.topics.require("publish", "open")
        assert "secret" not in str(raised.value)


@on_loop
async def test_an_alias_is_given_only_by_who_may_create_a_topic_of_that_name() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.grants.add([grant("all", "topic", "mine", "prefixed")])
        act_as(ALICE)
        with pytest.raises(TopicForbiddenError, match="'orders'"):
            await broker.topics.create("mine", alias="orders")
        await broker.topics.create("mine", alias="mine.too")
        with pytest.raises(TopicForbiddenError, match="'orders'"):
            await broker.topics.alter("mine", alias="orders")
        await broker.topics.alter("mine", alias=None)


@on_loop
async def test_a_topic_grows_by_who_may_alter_it() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.topics.create("orders")
        await broker.grants.add([grant("create", "topic", "orders")])
        act_as(ALICE)
        assert (await broker.topics.create("orders")).partitions == 1
        with pytest.raises(TopicForbiddenError):
            await broker.topics.create("orders", 2)
        with pytest.raises(TopicForbiddenError):
            await broker.topics.add_partitions("orders", 1)
        await broker.grants.add([grant("alter_configs", "topic", "orders")])
        await broker.topics.alter("orders", TopicOptions(retention_seconds=60))
        with pytest.raises(TopicForbiddenError):
            await broker.topics.create("orders", 2)


@on_loop
async def test_everybody_reads_patterns_and_nobody_does_anything_else_with_them() -> None:
    async with running_broker(security=SECURED) as broker:
        assert broker.topics.allows(ALICE, "consume", "orders.>@4")
        assert broker.topics.allows(ALICE, "describe", "orders.>")
        act_as(ALICE)
        with pytest.raises(TopicForbiddenError):
            broker.topics.require("publish", "orders.>")
        await broker.grants.add([grant("publish", "topic", "orders", "prefixed")])
        with pytest.raises(ReadOnlyTopicError):
            await broker.publisher.publish([Message("orders.>", b"x")])


@on_loop
async def test_of_messages_one_that_may_not_be_published_refuses_all_and_of_batches_only_its_own() -> None:
    async with running_broker(security=SECURED) as broker:
        for name in ("mine", "other"):
            await broker.topics.create(name)
        await broker.grants.add([grant("publish", "topic", "mine")])
        act_as(ALICE)
        with pytest.raises(TopicForbiddenError, match="'other'"):
            await broker.publisher.publish([Message("mine", b"x"), Message("other", b"x")])
        outcomes = await broker.appender.append([RawBatch(name, 0, BATCH) for name in ("mine", "other", "missing")])
        assert [isinstance(each, TopicForbiddenError) for each in outcomes] == [False, True, True]
        (alone,) = await broker.appender.append([RawBatch("other", 0, BATCH)])
        assert isinstance(alone, TopicForbiddenError)
        ends = {name: broker.positions.bounds(name, 0).end for name in ("mine", "other")}
        assert ends == {"mine": 1, "other": 0}


@on_loop
async def test_staged_chunks_need_the_right_to_the_topic_in_which_they_are_stored() -> None:
    async with running_broker(security=SECURED) as broker:
        mine, other = [(await broker.topics.create(name)).id for name in ("mine", "other")]
        await broker.pipelines.lease("leased", "somebody")
        act_as(ALICE)
        with pytest.raises(ForbiddenError, match="idempotent write"):
            await broker.pipelines.stage("q", "one", 0, b"")
        await broker.grants.add([grant("publish", "topic", "mine")])
        forged = encode_staged_chunk(StagedChunk([], [StagedBatch(other, "mine", 0, BATCH)]))
        with pytest.raises(TopicForbiddenError, match="'other'"):
            await broker.pipelines.stage("q", "one", 0, forged)
        for name, error in (("leased", GroupForbiddenError), ("router", ForbiddenError)):
            with pytest.raises(error):
                await broker.pipelines.stage(name, "one", 0, b"")
        await broker.pipelines.stage("q", "one", 0, encode_staged_chunk(StagedChunk([], [StagedBatch(mine, "mine", 0, BATCH)])))
        assert await broker.pipelines.write("q", [Stage("one", 1)], MarkMove("batch", None, 1), 10)
        assert broker.positions.bounds("mine", 0).end == 1


@on_loop
async def test_who_runs_a_capture_writes_to_the_topics_of_its_source_and_to_those_that_were_granted() -> None:
    async with running_broker(security=SECURED) as broker:
        source, (orders,) = await define_source(broker, "orders")
        epoch = broker.sources.attach(source, "alice's process")
        granted, other = [(await broker.topics.create(name)).id for name in ("outbox", "other")]
        audit = broker.topics.get("_audit").topic.id
        await broker.grants.add([grant("alter", "source", "shop"), grant("publish", "topic", "outbox")])
        act_as(ALICE)

        def captured(at: int, *topics: TopicId) -> bytes:
            batches = [StagedBatch(topic, "shop.public.orders", 0, BATCH) for topic in topics]
            return encode_staged_chunk(StagedChunk([MarkMove("lsn", at - 1 or None, at)], batches))

        for topic in (other, audit):
            with pytest.raises(TopicForbiddenError):
                await broker.captured.append(source, epoch, captured(1, orders.table.changes, topic))
            with pytest.raises(TopicForbiddenError):
                await broker.captured.stage(source, "one", 0, captured(1, topic))
        await broker.captured.append(source, epoch, captured(1, orders.table.changes, granted))
        assert [broker.positions.bounds(name, 0).end for name in ("shop.public.orders", "outbox", "other")] == [1, 1, 0]


@on_loop
async def test_the_server_writes_dead_letters_for_who_may_not_create_their_topic() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.topics.create("jobs")
        await broker.publisher.publish([Message("jobs", b"poison")])
        await broker.grants.add([grant("consume", "topic", "jobs"), grant("consume", "queue", "q")])
        token = act_as(ALICE)
        (delivery,) = await broker.queues.receive(ReceiveRequest(group="q", pattern="jobs", max_deliveries=1))
        await broker.queues.release("q", [delivery.receipt])
        with pytest.raises(TopicForbiddenError, match="publish"):
            broker.redrives.letters_of("jobs")
        stop_acting(token)
        letters = broker.redrives.letters_of("jobs")
        await broker.grants.add([grant("publish", "topic", "jobs")])
        token = act_as(ALICE)
        with pytest.raises(TopicForbiddenError, match="dead_letters"):
            broker.redrives.letters_of("jobs")
        stop_acting(token)
        assert broker.store.bounds(PartitionId(letters.topic.id, 0)).end == 1


@on_loop
async def test_a_regular_expression_matches_topics_that_the_member_may_describe() -> None:
    async with running_broker(security=SECURED) as broker:
        for name in ("app.a", "app.b"):
            await broker.topics.create(name)
        await broker.grants.add([grant("consume", "group", "g"), grant("consume", "topic", "app.a")])
        act_as(ALICE)
        joining = ConsumerHeartbeat(
            "g", "m", JOINING_EPOCH, "c", "h", rebalance_timeout_ms=60_000, topic_pattern="app.*", owned={}
        )
        await broker.consumer_groups.heartbeat(joining)
        assert _assigned(broker.consumer_groups.describe("g")) == ["app.a"]
        await broker.grants.add([grant("consume", "topic", "app.b")])
        (member,) = broker.consumer_groups.describe("g").members
        await broker.consumer_groups.heartbeat(ConsumerHeartbeat("g", "m", member.epoch, "c", "h"))
        assert _assigned(broker.consumer_groups.describe("g")) == ["app.a", "app.b"]
        await broker.grants.remove(lambda one: one.name == "app.a")
        (member,) = broker.consumer_groups.describe("g").members
        await broker.consumer_groups.heartbeat(ConsumerHeartbeat("g", "m", member.epoch, "c", "h"))
        assert _targeted(broker.consumer_groups.describe("g")) == ["app.b"]
        with pytest.raises(TopicForbiddenError):
            await broker.consumer_groups.heartbeat(joining._replace(member_id="n", topic_names=("app.a",), topic_pattern=None))


@on_loop
async def test_offsets_are_committed_and_shown_by_topic() -> None:
    async with running_broker(security=SECURED) as broker:
        for name in ("app.a", "app.b"):
            await broker.topics.create(name)
        await broker.offsets.commit_each("g", [OffsetCommit(name, 0, Offset(0)) for name in ("app.a", "app.b")])
        await broker.grants.add([grant("consume", "group", "g"), grant("consume", "topic", "app.a")])
        act_as(ALICE)
        outcomes = await broker.offsets.commit_each(
            "g", [OffsetCommit(name, 0, Offset(0)) for name in ("app.a", "app.b", "no")]
        )
        assert [None if each is None else type(each) for each in outcomes] == [None, TopicForbiddenError, TopicForbiddenError]
        assert [each.topic for each in broker.offsets.committed_by("g")] == ["app.a"]
        assert [each.topic for each in broker.offsets.lag("g")] == ["app.a"]
        with pytest.raises(TopicForbiddenError):
            broker.offsets.committed("g", "app.b", 0)
        with pytest.raises(GroupForbiddenError):
            await broker.group_removal.delete("g")


@on_loop
async def test_lists_have_what_may_be_described() -> None:
    async with running_broker(security=SECURED) as broker:
        for name in ("app.a", "app.b"):
            await broker.topics.create(name)
            await broker.offsets.commit_each(name, [OffsetCommit(name, 0, Offset(0))])
            await broker.queues.receive(ReceiveRequest(group=name, pattern=name))
            await broker.transactions.init_producer(name, 60_000)
        await broker.grants.add(grant("describe", kind, "app.a") for kind in ("topic", "group", "queue", "transactional_id"))
        assert len(broker.groups.visible()) == len(broker.queues.all()) == 2
        assert {live.topic.name for live in broker.topics.visible()} > {"app.a", "app.b"}
        act_as(ALICE)
        assert [live.topic.name for live in broker.topics.visible()] == ["app.a"]
        assert [group.name for group in broker.groups.visible()] == ["app.a"]
        assert [queue.group for queue in broker.queues.all()] == ["app.a"]
        assert [one.transactional_id for one in broker.transaction_queries.find()] == ["app.a"]


@on_loop
async def test_with_authentication_off_errors_are_those_of_what_is_missing() -> None:
    async with running_broker() as broker:
        act_as(ALICE)
        with pytest.raises(UnknownTopicError):
            await broker.publisher.publish([Message("missing", b"x")])
        (outcome,) = await broker.appender.append([RawBatch("missing", 0, BATCH)])
        assert isinstance(outcome, UnknownTopicError)
        await broker.topics.create("made")
        await broker.topics.delete("made")
        with pytest.raises(TailraceError) as raised:
            await broker.group_removal.delete("g")
        assert not isinstance(raised.value, ForbiddenError)


def _assigned(group: ConsumerGroupDescription) -> list[str]:
    return sorted(one.topic for member in group.members for one in member.assigned)


def _targeted(group: ConsumerGroupDescription) -> list[str]:
    return sorted(one.topic for member in group.members for one in member.target)
