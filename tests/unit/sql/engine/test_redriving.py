"""REDRIVE puts dead letters back where they came from, each once."""

import pytest

from tailrace.model.errors import LimitExceededError, ReservedTopicError, SqlSyntaxError, UnknownTopicError, UnsupportedSqlError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import Message, Record
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import values_in
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish
from tests.support.sql import SqlClient, running_sql


async def bury(sql: SqlClient, *values: bytes, topic: str = "mail") -> None:
    """Publish these and give them back until they are dead letters; the reason is their first byte."""
    await publish(sql.broker, topic, *values)
    consumer = QueueConsumer(sql.broker, pattern=topic, max_deliveries=1)
    while got := await consumer.receive(10):
        for delivery in got:
            await consumer.nack(delivery, reason=f"cause {(delivery.record.value or b'')[:1].decode()}")


async def records(sql: SqlClient, topic: str, partition: int = 0) -> list[Record]:
    return list((await sql.broker.read(topic, partition, Offset(0), max_records=100)).records)


@on_loop
async def test_all_dead_letters_go_back_in_their_order_and_only_once() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC mail")
        await bury(sql, b"a1", b"b1", b"a2")
        assert await sql.rows("REDRIVE DEAD LETTERS OF mail") == [("mail", 3, 0)]
        assert await values_in(sql.broker, "mail") == [b"a1", b"b1", b"a2"] * 2
        assert await sql.rows("REDRIVE DEAD LETTERS OF mail") == [("mail", 0, 0)]
        assert await values_in(sql.broker, "mail.dead_letters") == [b"a1", b"b1", b"a2"]


@on_loop
async def test_what_goes_back_keeps_its_origin_and_says_how_often() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC mail PARTITIONS 3")
        await sql.broker.publish([Message("mail", b"x", b"k", [("mine", b"1")], partition=2, message_id="m-1")])
        consumer = QueueConsumer(sql.broker, pattern="mail", max_deliveries=1)
        for times in (1, 2):
            await consumer.nack(*await consumer.receive())
            await sql.run("REDRIVE DEAD LETTERS OF mail")
            back = (await records(sql, "mail", 2))[-1]
            assert (back.key, back.value, back.offset) == (b"k", b"x", times)
            assert dict(back.headers) == {
                "mine": b"1",
                "message_id": b"m-1",
                "origin_topic": b"mail",
                "origin_partition": b"2",
                "origin_offset": b"%d" % (times - 1),
                "origin_message_id": b"m-1",
                "redriven": b"%d" % times,
            }


@on_loop
async def test_a_condition_and_a_limit_choose_and_the_rest_can_follow() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC mail")
        await bury(sql, b"a1", b"b1", b"a2", b"a3")
        statement = "REDRIVE DEAD LETTERS OF mail WHERE headers ->> 'dead_letter_cause' = 'cause a' LIMIT 2"
        assert await sql.rows(statement) == [("mail", 2, 0)]
        assert (await values_in(sql.broker, "mail"))[4:] == [b"a1", b"a2"]
        assert await sql.rows(statement) == [("mail", 1, 0)]
        assert await sql.rows("REDRIVE DEAD LETTERS OF mail LIMIT 5") == [("mail", 1, 0)]
        assert (await values_in(sql.broker, "mail"))[4:] == [b"a1", b"a2", b"a3", b"b1"]


@on_loop
async def test_nothing_goes_back_twice_over_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_sql(store=store, clock=clock) as sql:
        await sql.run("CREATE TOPIC mail")
        await bury(sql, b"a", b"b")
        await sql.run("REDRIVE DEAD LETTERS OF mail LIMIT 1")
    async with running_sql(store=store, clock=clock) as sql:
        assert await sql.rows("REDRIVE DEAD LETTERS OF mail") == [("mail", 1, 0)]
        assert await values_in(sql.broker, "mail") == [b"a", b"b", b"a", b"b"]


@on_loop
async def test_letters_that_did_not_come_from_a_queue_are_left_and_told() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC mail")
        await bury(sql, b"a")
        await publish(sql.broker, "mail.dead_letters", b"of a route")
        assert await sql.rows("REDRIVE DEAD LETTERS OF mail LIMIT 5") == [("mail", 1, 1)]


@on_loop
async def test_too_many_gaps_are_refused_and_nothing_goes_back() -> None:
    async with running_sql(limits=Limits(redriven_ranges=1)) as sql:
        await sql.run("CREATE TOPIC mail")
        await bury(sql, b"a", b"b", b"a")
        with pytest.raises(LimitExceededError, match="redriven_ranges"):
            await sql.run("REDRIVE DEAD LETTERS OF mail WHERE value = 'a'")
        assert len(await values_in(sql.broker, "mail")) == 3


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("REDRIVE DEAD LETTERS OF nowhere", UnknownTopicError),
        ("REDRIVE DEAD LETTERS OF mail", UnknownTopicError),
        ("REDRIVE DEAD LETTERS OF _changes.chat", ReservedTopicError),
        ("REDRIVE DEAD LETTERS mail", SqlSyntaxError),
        ("REDRIVE DEAD LETTERS OF mail LIMIT 1 WHERE true", SqlSyntaxError),
        ("REDRIVE DEAD LETTERS OF mail WHERE value = ?", UnsupportedSqlError),
        ("REDRIVE DEAD LETTERS OF mail WHERE value IN (SELECT 'a')", UnsupportedSqlError),
    ],
)
def test_what_can_not_be_redriven_is_refused(statement: str, error: type[Exception]) -> None:
    @on_loop
    async def run() -> None:
        async with running_sql() as sql:
            await sql.run("CREATE TOPIC mail; CREATE TABLE chat (id BIGINT PRIMARY KEY)")
            with pytest.raises(error):
                await sql.run(statement)

    run()
