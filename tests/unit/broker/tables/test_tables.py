"""Definitions of tables, the topics of their changes, and names that belong to the server."""

import asyncio

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.tables.change_log import ChangeBatch
from tailrace.model.errors import (
    ReservedTopicError,
    TableExistsError,
    TailraceError,
    TopicExistsError,
    UnknownTableError,
    UnknownTopicError,
)
from tailrace.model.ids import Offset
from tailrace.model.record import Message, Record
from tailrace.model.table import Column, ColumnType, Table, TableCheckpoint
from tailrace.store.memory import MemoryStore
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, bounds_of, options, raw, running_broker
from tests.support.clocks import ManualClock

ID = Column("id", ColumnType("bigint"), nullable=False)


async def create(broker: Broker, name: str = "chat.messages") -> Table:
    return await broker.tables.create(name, [ID], ["id"])


def batch(table: Table, *values: bytes, at: int = 1_700_000_000_000) -> ChangeBatch:
    return ChangeBatch(table, encode_batch([Record(b"k", value, (), at) for value in values]), len(values), at)


@on_loop
async def test_a_table_and_its_change_topic_are_made_and_go_in_one_commit() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        store.close_gate()
        making = asyncio.create_task(create(broker))
        await until(lambda: bool(store.in_flight))
        assert len(store.in_flight) == 1
        assert broker.tables.find("chat.messages") is None
        store.open_gate()
        table = await making
        topic = broker.topics.get("chat.messages").topic
        assert (topic.name, topic.alias, topic.partitions) == ("_changes.chat.messages", "chat.messages", 1)
        assert topic.id == table.changes
        await broker.tables.drop("Chat.Messages")
        for find in (broker.tables.get, broker.topics.get):
            with pytest.raises((UnknownTableError, UnknownTopicError)):
                find("chat.messages")


@on_loop
async def test_definitions_survive_a_restart_and_ids_are_not_used_again() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        first, second = await create(broker, "a.t"), await create(broker, "b.t")
        await broker.tables.drop("a.t")
    async with running_broker(store) as broker:
        assert list(broker.tables) == [second]
        assert (await create(broker, "a.t")).id not in (first.id, second.id)


@on_loop
async def test_tables_and_topics_share_one_space_of_names() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.news", alias="app.latest")
        await create(broker)
        for name in ("app.news", "app.latest", "chat.messages", "CHAT.messages"):
            with pytest.raises(TableExistsError):
                await create(broker, name)
        with pytest.raises(TopicExistsError):
            await broker.topics.create("chat.messages")
        with pytest.raises(TopicExistsError):
            await broker.topics.create("x", alias="chat.messages")


@on_loop
async def test_the_server_s_own_topics_are_made_written_and_deleted_by_nobody_else() -> None:
    async with running_broker() as broker:
        await create(broker)
        own = "_changes.chat.messages"
        for name in (own, "_changes.other", "_routes", "system.x"):
            with pytest.raises(TailraceError):
                await broker.topics.create(name, must_be_new=True)
        with pytest.raises(ReservedTopicError):
            await broker.topics.create("y", alias="system.y")
        for name in (own, "chat.messages"):
            with pytest.raises(ReservedTopicError):
                await broker.publisher.publish([Message(name, b"forged")])
            (refusal,) = await broker.appender.append([raw(name, 0, b"forged")])
            assert isinstance(refusal, ReservedTopicError)
            with pytest.raises(ReservedTopicError):
                await broker.topics.delete(name)
        with pytest.raises(TailraceError):
            await broker.topics.create(own, 3)
        for wrong in (options(dedup="content"), options(timestamps="append"), options(max_message_bytes=10)):
            with pytest.raises(ReservedTopicError):
                await broker.topics.alter(own, wrong)
        with pytest.raises(ReservedTopicError):
            await broker.topics.alter(own, alias=None)
        await broker.topics.alter(own, options(retention_seconds=60))
        assert bounds_of(broker, own) == (0, 0)


@on_loop
async def test_changes_of_many_tables_and_messages_are_one_commit_with_dense_cursors() -> None:
    async with running_broker() as broker:
        left, right = await create(broker, "a.left"), await create(broker, "a.right")
        await broker.topics.create("a.topic")
        done = await broker.changes.commit(
            [batch(left, b"1", b"2"), batch(right, b"3"), batch(left, b"4")], [Message("a.topic", b"5")]
        )
        assert (done.cursor, list(done.ends)) == (0, [2, 1, 3])
        assert [published.cursor for published in done.published] == [4]
        found = [record.value for record in broker.changes.read(left, Offset(0), 1 << 20)]
        assert found == [b"1", b"2", b"4"]
        assert broker.changes.read(left, Offset(3), 1 << 20) == []


@on_loop
async def test_retention_keeps_changes_until_the_rows_are_durable_and_in_a_checkpoint() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        table = await create(broker)
        await broker.topics.alter("chat.messages", options(retention_seconds=60))
        for value in (b"1", b"2", b"3"):
            await broker.changes.commit([batch(table, value, at=clock.now_ms())])
        clock.advance(120_000)
        assert await broker.retention.run_once() == 0
        broker.changes.applied({table.id: Offset(2)})
        assert await broker.retention.run_once() == 0
        checkpoint = TableCheckpoint(table=table.id, offset=Offset(3), first=Offset(0), end=Offset(0))
        await broker.changes.checkpoints.append(table, None, checkpoint, (), is_done=True)
        with pytest.raises(ReservedTopicError, match="from offset 2 on"):
            await broker.retention.delete_before("chat.messages", 0, Offset(3))
        assert await broker.retention.run_once() == 2
        assert bounds_of(broker, "chat.messages") == (2, 3)


@on_loop
async def test_transaction_ids_rise_over_a_restart() -> None:
    store = MemoryStore()
    clock = ManualClock()
    async with running_broker(store, clock) as broker:
        table = await create(broker)
        last = broker.changes.next_transaction()
        await broker.changes.commit([batch(table, b"1")])
    clock.step_back(3_600_000)
    async with running_broker(store, clock) as broker:
        assert broker.changes.next_transaction() > last
