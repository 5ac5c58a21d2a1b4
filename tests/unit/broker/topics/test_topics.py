import asyncio
from uuid import UUID

import pytest

from tailrace.broker import keys
from tailrace.model.errors import (
    ConfigurationError,
    InvalidPartitionsError,
    InvalidTopicNameError,
    LimitExceededError,
    StorageFullError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.model.topic import TopicSettings
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, bounds_of, options, raw, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.support.offsets import up_to


@on_loop
async def test_a_topic_is_made_with_its_partitions() -> None:
    store = MemoryStore()
    clock = ManualClock()
    async with running_broker(store, clock) as broker:
        topic = await broker.topics.create("app.orders", 3, alias="orders")
        assert (topic.name, topic.alias, topic.partitions) == ("app.orders", "orders", 3)
        assert topic.settings == TopicSettings()
        assert topic.created_ms == clock.now_ms()
        assert store.partitions() == [PartitionId(topic.id, number) for number in range(3)]


@on_loop
async def test_a_topic_is_found_by_name_alias_and_uuid() -> None:
    async with running_broker() as broker:
        topic = await broker.topics.create("app.orders", alias="orders")
        for found in (broker.topics.get("app.orders"), broker.topics.get("orders"), broker.topics.by_uuid(topic.uuid)):
            assert found.topic == topic
        assert broker.topics.find("nothing") is None
        with pytest.raises(UnknownTopicError, match="'nothing'"):
            broker.topics.get("nothing")
        with pytest.raises(UnknownTopicError, match="00000000"):
            broker.topics.by_uuid(UUID(int=0))


@on_loop
async def test_the_same_count_again_changes_nothing() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        topic = await broker.topics.create("t", 2, options=options(retention_seconds=60))
        commits = store.stats().commits
        assert await broker.topics.create("t", 2) == topic
        assert await broker.topics.create("t", 2, options=options(retention_seconds=60)) == topic
        assert store.stats().commits == commits


@on_loop
async def test_more_partitions_make_it_grow_and_keep_its_records() -> None:
    async with running_broker() as broker:
        before = await broker.topics.create("t", 1)
        await append(broker, raw("t", 0, b"old"))
        grown = await broker.topics.create("t", 4)
        assert (grown.id, grown.uuid, grown.partitions) == (before.id, before.uuid, 4)
        await append(broker, raw("t", 3, b"new"))
        assert await values_in(broker, "t", 0) == [b"old"]
        assert await values_in(broker, "t", 3) == [b"new"]


@on_loop
async def test_fewer_partitions_are_rejected() -> None:
    async with running_broker() as broker:
        topic = await broker.topics.create("t", 3)
        with pytest.raises(InvalidPartitionsError, match="has 3 partitions and can't shrink to 2"):
            await broker.topics.create("t", 2)
        assert broker.topics.get("t").topic == topic


@pytest.mark.parametrize("partitions", [0, -1])
@on_loop
async def test_a_topic_has_at_least_one_partition(partitions: int) -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidPartitionsError, match=f"not {partitions}"):
            await broker.topics.create("t", partitions)


@on_loop
async def test_settings_that_differ_are_rejected_by_name_and_change_nothing() -> None:
    async with running_broker() as broker:
        topic = await broker.topics.create("t", 1, alias="tee", options=options(retention_seconds=60))
        with pytest.raises(TopicExistsError, match="retention_seconds is 60, not 90"):
            await broker.topics.create("t", 5, options=options(retention_seconds=90))
        with pytest.raises(TopicExistsError, match="alias is 'tee', not 'other'"):
            await broker.topics.create("t", 1, alias="other")
        assert broker.topics.get("t").topic == topic


@pytest.mark.parametrize("name", ["", ".", "..", "a..b", ".a", "a.", "a b", "ä", "a/b", "x" * 250, ".".join("a" * 17)])
@on_loop
async def test_illegal_names_are_rejected(name: str) -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidTopicNameError):
            await broker.topics.create(name)
        with pytest.raises(InvalidTopicNameError):
            await broker.topics.create("legal", alias=name)
        assert len(broker.topics) == 0


@on_loop
async def test_names_and_aliases_share_one_space() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a", alias="shared")
        await broker.topics.create("b")
        with pytest.raises(TopicExistsError, match="'shared' is the alias of topic 'a'"):
            await broker.topics.create("shared")
        for taken in ("shared", "a", "b"):
            with pytest.raises(TopicExistsError):
                await broker.topics.create("c", alias=taken)
        with pytest.raises(TopicExistsError, match="own name"):
            await broker.topics.create("c", alias="c")
        with pytest.raises(TopicExistsError, match="'a' is the name of topic 'a'"):
            await broker.topics.alter("b", alias="a")


@on_loop
async def test_settings_and_alias_are_altered_and_others_stay() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", alias="old", options=options(retention_seconds=60, dedup="id"))
        altered = await broker.topics.alter("t", options(retention_seconds=None, max_message_bytes=500), alias="new")
        assert altered.settings == TopicSettings(dedup="id", max_message_bytes=500)
        assert broker.topics.get("new").topic == altered
        assert broker.topics.find("old") is None
        without = await broker.topics.alter("new", alias=None)
        assert without.alias is None
        assert broker.topics.find("new") is None


@on_loop
async def test_an_alteration_to_what_is_already_so_writes_nothing() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        topic = await broker.topics.create("t", options=options(retention_seconds=60))
        commits = store.stats().commits
        assert await broker.topics.alter("t", options(retention_seconds=60)) == topic
        assert store.stats().commits == commits


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention_seconds", 0),
        ("retention_max_bytes", -1),
        ("dedup_window_seconds", 0),
        ("dedup_window_seconds", 10**9),
        ("max_message_bytes", 10**9),
    ],
)
@on_loop
async def test_impossible_settings_are_rejected_by_name(setting: str, value: int) -> None:
    async with running_broker() as broker:
        with pytest.raises(ConfigurationError, match=f"{setting} is {value}"):
            await broker.topics.create("t", options=options(**{setting: value}))
        await broker.topics.create("t")
        with pytest.raises(ConfigurationError, match=setting):
            await broker.topics.alter("t", options(**{setting: value}))
        assert broker.topics.get("t").topic.settings == TopicSettings()


@on_loop
async def test_topics_and_partitions_are_limited() -> None:
    async with running_broker(limits=Limits(topics=2, partitions=5)) as broker:
        await broker.topics.create("a", 2)
        with pytest.raises(LimitExceededError, match=r"exceed the limit partitions \(5\)"):
            await broker.topics.create("b", 4)
        await broker.topics.create("b", 3)
        with pytest.raises(LimitExceededError, match="as many as the limit topics allows"):
            await broker.topics.create("c", 1)
        with pytest.raises(LimitExceededError, match="partitions"):
            await broker.topics.create("a", 3)
        await broker.topics.delete("b")
        await broker.topics.create("a", 5)


@on_loop
async def test_a_deleted_topic_is_gone_with_all_that_belongs_to_it() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        topic = await broker.topics.create("t", 1, alias="tee", options=options(dedup="id"))
        await broker.topics.create("other", 1, options=options(dedup="id"))
        producer = await broker.producers.allocate()
        for name in ("t", "other"):
            await broker.publisher.publish([Message(name, b"v", message_id="m")])
            await append(broker, raw(name, 0, b"w", producer_id=producer, producer_epoch=0, base_sequence=0))
            await broker.offsets.commit("g", [up_to(name, 0, 1)])
        await broker.topics.delete("tee")
        assert broker.topics.find("t") is broker.topics.find("tee") is None
        assert [partition.topic_id for partition in store.partitions()] == [broker.topics.get("other").topic.id]
        for prefix_of in (keys.topic_key, keys.offsets_of_topic, keys.producers_of_topic, keys.dedup_of_topic):
            assert store.range(prefix_of(topic.id)) == []
            assert store.range(prefix_of(broker.topics.get("other").topic.id)) != []


@on_loop
async def test_a_topic_created_again_is_a_new_one_without_old_state() -> None:
    async with running_broker() as broker:
        old = await broker.topics.create("t")
        await append(broker, raw("t", 0, b"old"))
        await broker.offsets.commit("g", [up_to("t", 0, 1)])
        await broker.topics.delete("t")
        new = await broker.topics.create("t")
        assert new.id > old.id
        assert new.uuid != old.uuid
        assert bounds_of(broker, "t") == (0, 0)
        assert broker.offsets.committed("g", "t", 0) is None
        with pytest.raises(UnknownTopicError):
            broker.topics.by_uuid(old.uuid)


@on_loop
async def test_deleting_an_unknown_topic_is_rejected() -> None:
    async with running_broker() as broker:
        with pytest.raises(UnknownTopicError, match="'t'"):
            await broker.topics.delete("t")
        with pytest.raises(UnknownTopicError, match="'t'"):
            await broker.topics.alter("t", alias="x")


@on_loop
async def test_a_partition_that_is_not_there_is_named() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        for number in (-1, 2):
            with pytest.raises(UnknownPartitionError, match=f"no partition {number}"):
                broker.topics.get("t").partition(number)


@on_loop
async def test_topics_come_back_after_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        made = await broker.topics.create("t", 2, alias="tee", options=options(retention_seconds=9, dedup="content"))
        gone = await broker.topics.create("gone")
        await broker.topics.delete("gone")
    async with running_broker(store) as broker:
        assert [live.topic for live in broker.topics] == [made]
        assert broker.topics.get("tee").topic == made
        again = await broker.topics.create("gone")
        assert again.id > gone.id


@on_loop
async def test_two_who_make_the_same_topic_get_the_same_topic() -> None:
    async with running_broker() as broker:
        first, second = await asyncio.gather(broker.topics.create("t", 2), broker.topics.create("t", 2))
        assert first == second
        assert len(broker.topics) == 1


@on_loop
async def test_a_topic_whose_maker_gave_up_is_still_made_once() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        store.close_gate()
        impatient = asyncio.ensure_future(broker.topics.create("t"))
        await turns()
        impatient.cancel()
        patient = asyncio.ensure_future(broker.topics.create("t"))
        await turns()
        store.open_gate()
        topic = await patient
        assert [live.topic for live in broker.topics] == [topic]
        assert len(store.range(keys.TOPICS)) == 1


@on_loop
async def test_a_creation_that_fails_leaves_nothing() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        store.close_gate()
        making = asyncio.ensure_future(broker.topics.create("t"))
        await turns()
        assert broker.topics.find("t") is None
        store.fail()
        with pytest.raises(StorageFullError):
            await making
        assert broker.topics.find("t") is None
        store.open_gate()
        assert (await broker.topics.create("t")).id == TopicId(1)


@on_loop
async def test_a_deletion_that_fails_leaves_the_topic_in_service() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        topic = await broker.topics.create("t", alias="tee")
        store.close_gate()
        deleting = asyncio.ensure_future(broker.topics.delete("t"))
        await turns()
        assert broker.topics.find("t") is None
        store.fail()
        with pytest.raises(StorageFullError):
            await deleting
        store.open_gate()
        assert broker.topics.get("tee").topic == topic
        assert (await append(broker, raw("t", 0, b"v"))).base_offset == 0


@on_loop
async def test_nothing_is_written_for_a_topic_whose_deletion_is_in_flight() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        topic = await broker.topics.create("t")
        store.close_gate()
        deleting = asyncio.ensure_future(broker.topics.delete("t"))
        await turns()
        with pytest.raises(UnknownTopicError):
            await broker.offsets.commit("g", [up_to("t", 0, 0)])
        with pytest.raises(UnknownTopicError):
            await broker.publisher.publish([Message("t", b"v")])
        store.open_gate()
        await deleting
        assert store.range(keys.offsets_of_topic(topic.id)) == []


@on_loop
async def test_partitions_added_at_the_same_time_all_come() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.orders", 1, alias="orders")
        await asyncio.gather(broker.topics.add_partitions("app.orders", 2), broker.topics.add_partitions("orders", 3))
        assert broker.topics.get("orders").topic.partitions == 6
        with pytest.raises(InvalidPartitionsError, match="not 0"):
            await broker.topics.add_partitions("orders", 0)


@on_loop
async def test_partitions_are_added_up_to_the_limit() -> None:
    async with running_broker(limits=Limits(partitions=4)) as broker:
        await broker.topics.create("t", 3)
        with pytest.raises(LimitExceededError, match="partitions"):
            await broker.topics.add_partitions("t", 2)
        assert (await broker.topics.add_partitions("t", 1)).partitions == 4
