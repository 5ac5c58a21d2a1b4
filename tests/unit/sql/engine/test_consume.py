"""CONSUME and ACK: where a group begins, goes on and may not go."""

import asyncio

import pytest

from tailrace.model.errors import (
    LimitExceededError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    ReservedTopicError,
    SqlError,
    SqlSyntaxError,
    TailraceError,
    UnknownTopicError,
    UnsupportedSqlError,
)
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import Message, Record
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import values_in
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish
from tests.support.sql import SqlClient, running_sql


async def insert(sql: SqlClient, *values: str, partition: int = 0) -> None:
    await sql.run("INSERT INTO a (value, partition) VALUES (?, ?)", [[value, partition] for value in values])


async def values(sql: SqlClient, text: str) -> list[object]:
    return [row["value"] for row in await sql.dicts(text)]


@on_loop
async def test_a_plain_read_begins_where_it_is_told_and_stores_nothing() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "0", "1", "2")
        assert await values(sql, "CONSUME FROM a") == ["0", "1", "2"]
        assert await values(sql, "CONSUME FROM a FROM EARLIEST LIMIT 2") == ["0", "1"]
        assert await values(sql, "CONSUME FROM a FROM LATEST") == []
        assert await values(sql, "CONSUME FROM a FROM OFFSET 1") == ["1", "2"]
        assert await values(sql, "CONSUME FROM a FROM TIMESTAMP '2100-01-01'") == []
        assert await sql.rows("SHOW GROUPS") == []


@on_loop
async def test_a_group_goes_on_where_it_has_acked() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a WITH (alias = 'b')")
        await insert(sql, "0", "1", "2")
        assert await values(sql, "CONSUME FROM a GROUP 'g' FROM EARLIEST LIMIT 2") == ["0", "1"]
        assert await values(sql, "CONSUME FROM a GROUP 'g' LIMIT 2") == ["0", "1"]
        assert await sql.rows("ACK b GROUP 'g' PARTITION 0 UPTO OFFSET 1") == [("a", "g", 0, 1)]
        assert await values(sql, "CONSUME FROM b GROUP 'g' FROM EARLIEST") == ["2"]
        assert await values(sql, "CONSUME FROM a GROUP 'g' FROM LATEST") == ["2"]


@on_loop
async def test_from_offset_counts_always() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "0", "1", "2")
        await sql.engine.execute("CONSUME FROM a GROUP 'g'; ACK a GROUP 'g' UPTO OFFSET 1")
        assert await values(sql, "CONSUME FROM a GROUP 'g' FROM OFFSET 0") == ["0", "1", "2"]
        assert await values(sql, "CONSUME FROM a GROUP 'g'") == ["2"]


@on_loop
async def test_latest_the_first_time_fixes_the_place() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "0")
        assert await values(sql, "CONSUME FROM a GROUP 'g' FROM LATEST") == []
        await insert(sql, "1", "2")
        assert await values(sql, "CONSUME FROM a GROUP 'g' FROM LATEST") == ["1", "2"]


@on_loop
async def test_all_partitions_are_read_in_the_order_of_the_log() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a PARTITIONS 3")
        for number in range(9):
            await insert(sql, str(number), partition=number * 2 % 3)
        assert await values(sql, "CONSUME FROM a") == [str(number) for number in range(9)]
        assert await values(sql, "CONSUME FROM a LIMIT 4") == ["0", "1", "2", "3"]
        assert await values(sql, "CONSUME FROM a PARTITION 1") == ["2", "5", "8"]
        with pytest.raises(TailraceError, match="3 partitions"):
            await sql.run("CONSUME FROM a FROM OFFSET 1")


@on_loop
async def test_offsets_are_those_of_kafka_groups() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "0", "1", "2")
        await sql.broker.offsets.commit("g", [OffsetCommit("a", 0, sql.broker.positions.bounds("a", 0).end)], reset=True)
        assert await values(sql, "CONSUME FROM a GROUP 'g' FROM EARLIEST") == []
        await insert(sql, "3")
        await sql.run("ACK a GROUP 'g' UPTO OFFSET 3")
        committed = sql.broker.offsets.committed("g", "a", 0)
        assert committed is not None
        assert committed.offset == 4


@on_loop
async def test_an_ack_goes_forward_up_to_the_end() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "0", "1", "2")
        await sql.run("ACK a GROUP 'g' PARTITION 0 UPTO OFFSET 1")
        await sql.run("COMMIT a GROUP 'g' PARTITION 0 UPTO OFFSET 1")
        with pytest.raises(OffsetRegressionError):
            await sql.run("ACK a GROUP 'g' PARTITION 0 UPTO OFFSET 0")
        for offset in (3, 99, -1):
            with pytest.raises(OffsetOutOfRangeError):
                await sql.run(f"ACK a GROUP 'g' PARTITION 0 UPTO OFFSET {offset}")
        assert await values(sql, "CONSUME FROM a GROUP 'g'") == ["2"]


@on_loop
async def test_wait_ends_with_the_first_record() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a PARTITIONS 2")
        waiting = asyncio.ensure_future(values(sql, "CONSUME FROM a WAIT '20s'"))
        await until(lambda: len(sql.broker.waiting_fetches) == 1)
        await insert(sql, "x", partition=1)
        assert await waiting == ["x"]


@on_loop
async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        waiting = asyncio.ensure_future(sql.run("CONSUME FROM a WAIT '20s'"))
        await until(lambda: len(sql.broker.waiting_fetches) == 1)
        waiting.cancel()
        await until(lambda: len(sql.broker.waiting_fetches) == 0)


@on_loop
async def test_a_group_behind_a_cleared_topic_is_told_and_goes_on_after_an_ack() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "0", "1")
        await sql.engine.execute("CONSUME FROM a GROUP 'behind'; ACK a GROUP 'done' UPTO OFFSET 1; CLEAR TOPIC a")
        await insert(sql, "2")
        assert await values(sql, "CONSUME FROM a GROUP 'done'") == ["2"]
        with pytest.raises(OffsetOutOfRangeError, match="ack up to 1"):
            await sql.run("CONSUME FROM a GROUP 'behind'")
        await sql.run("ACK a GROUP 'behind' UPTO OFFSET 1")
        assert await values(sql, "CONSUME FROM a GROUP 'behind'") == ["2"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("CONSUME FROM a LIMIT 0", SqlError),
        ("CONSUME FROM a LIMIT -1", SqlError),
        ("CONSUME FROM a LIMIT 1000000", LimitExceededError),
        ("CONSUME FROM a WAIT '10m'", LimitExceededError),
        ("CONSUME FROM a FROM OFFSET 7", OffsetOutOfRangeError),
        ("CONSUME FROM a FROM OFFSET -1", OffsetOutOfRangeError),
        ("CONSUME FROM a PARTITION 9", TailraceError),
        ("CONSUME FROM a PARTITION -1", TailraceError),
        ("CONSUME FROM nothing", TailraceError),
        ("CONSUME FROM a GROUP ''", TailraceError),
        ("ACK a GROUP '' UPTO OFFSET 0", TailraceError),
    ],
)
@on_loop
async def test_what_can_not_be_read_is_refused(text: str, error: type[TailraceError]) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        with pytest.raises(error) as refused:
            await sql.run(text)
        assert 400 <= refused.value.http_status < 500


@on_loop
async def test_a_group_begins_anew_in_a_topic_that_was_made_again() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await insert(sql, "old 0", "old 1", "old 2")
        assert await values(sql, "CONSUME FROM a GROUP 'g'") == ["old 0", "old 1", "old 2"]
        await sql.run("ACK a GROUP 'g' PARTITION 0 UPTO OFFSET 2")
        await sql.run("DROP TOPIC a")
        await sql.run("CREATE TOPIC a")
        await insert(sql, "new 0", "new 1", "new 2", "new 3", "new 4")
        assert await values(sql, "CONSUME FROM a GROUP 'g'") == ["new 0", "new 1", "new 2", "new 3", "new 4"]


async def bury(sql: SqlClient, *values: bytes, topic: str = "mail") -> None:
    """Publish these and give them back until they are dead letters; the reason is their first byte."""
    await publish(sql.broker, topic, *values)
    consumer = QueueConsumer(sql.broker, pattern=topic, max_deliveries=1)
    while got := await consumer.receive(10):
        for delivery in got:
            await consumer.nack(delivery, reason=f"cause {(delivery.record.value or b'')[:1].decode()}")


async def records(sql: SqlClient, topic: str, partition: int = 0) -> list[Record]:
    return list((await sql.broker.committed_reader.read(topic, partition, Offset(0), max_records=100)).records)


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
        await sql.broker.publisher.publish([Message("mail", b"x", b"k", [("mine", b"1")], partition=2, message_id="m-1")])
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
