"""Cut-overs: a fence from its beginning to its end, whatever that is."""

import asyncio

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.errors import (
    CutOverTopicError,
    FencedTopicError,
    InvalidRequestError,
    RoutedError,
    ShadowPhaseError,
    StorageFullError,
)
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, until
from tests.support.batches import TIMESTAMP
from tests.support.brokers import GatedStore, append, raw, running_broker, values_in
from tests.support.shadows import OWNER, created, cut_over, fenced, unfenced
from tests.support.sql import running_sql
from tests.support.transactions import TIMEOUT_MS

QUICK = msgspec.structs.replace(DEFAULT_LIMITS, shadow_fence_silence_seconds=1, shadow_fence_seconds=3)


async def given_topics(broker: Broker) -> None:
    await broker.topics.create("app.orders", 2)
    await broker.topics.create("other", 1)


@on_loop
async def test_a_fence_refuses_records_until_it_is_given_up() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        shadow = await fenced(broker)
        assert (shadow.phase, shadow.fences) == ("fenced", 1)
        with pytest.raises(FencedTopicError, match=r"'app\.orders' takes no records while it is cut over to"):
            await append(broker, raw("app.orders", 0, b"a"))
        await append(broker, raw("other", 0, b"a"))
        after = await unfenced(broker, shadow)
        assert (after.phase, after.fence, after.note) == ("copying", None, None)
        await append(broker, raw("app.orders", 0, b"b"))
        assert await values_in(broker, "app.orders") == [b"b"]


@on_loop
async def test_after_a_cut_over_records_are_refused_for_good_or_taken() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        shadow = await cut_over(broker, "refuse")
        with pytest.raises(CutOverTopicError, match=r"was cut over to the Kafka at kafka-1:9092 .* send them there"):
            await append(broker, raw("app.orders", 0, b"a"))
        await broker.cut_overs.roll_back(shadow, None)
        await append(broker, raw("app.orders", 0, b"b"))
        again = await broker.cut_overs.fence(shadow, OWNER, "forward")
        await broker.cut_overs.finish(again, "forward", again.fences)
        await append(broker, raw("app.orders", 0, b"c"))
        assert await values_in(broker, "app.orders") == [b"b", b"c"]


@on_loop
async def test_topics_that_appear_are_fenced_too() -> None:
    async with running_broker() as broker:
        await fenced(broker)
        await broker.topics.create("app.later", 1)
        await broker.topics.create("apps", 1)
        with pytest.raises(FencedTopicError):
            await append(broker, raw("app.later", 0, b"a"))
        await append(broker, raw("apps", 0, b"a"))


@on_loop
async def test_a_topic_made_again_under_its_name_is_fenced_too() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        await cut_over(broker)
        await broker.topics.delete("app.orders")
        await broker.topics.create("app.orders", 1)
        with pytest.raises(CutOverTopicError):
            await append(broker, raw("app.orders", 0, b"a"))


@on_loop
async def test_records_are_refused_before_the_fence_is_durable() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await given_topics(broker)
        shadow = await created(broker)
        store.close_gate()
        before = broker.appender.append([raw("app.orders", 0, b"before")])
        await asyncio.sleep(0)
        fencing = asyncio.ensure_future(broker.cut_overs.fence(shadow, OWNER, "refuse"))
        await until(lambda: len(store.in_flight) == 2)
        with pytest.raises(FencedTopicError):
            await append(broker, raw("app.orders", 0, b"behind"))
        store.open_gate()
        await fencing
        await before
        assert await values_in(broker, "app.orders") == [b"before"]


@on_loop
async def test_a_fence_whose_commit_fails_is_none() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await given_topics(broker)
        shadow = await created(broker)
        store.close_gate()
        fencing = asyncio.ensure_future(broker.cut_overs.fence(shadow, OWNER, "refuse"))
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(StorageFullError):
            await fencing
        store.open_gate()
        await append(broker, raw("app.orders", 0, b"a"))
        assert broker.shadows.get("prod").phase == "copying"


@pytest.mark.parametrize("phase", ["fenced", "refuse", "forward"])
@on_loop
async def test_phases_survive_a_restart(phase: str) -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await given_topics(broker)
        if phase == "fenced":
            await fenced(broker)
        else:
            await cut_over(broker, "refuse" if phase == "refuse" else "forward")
    async with running_broker(store) as broker:
        shadow = broker.shadows.get("prod")
        if phase == "forward":
            await append(broker, raw("app.orders", 0, b"a"))
        else:
            with pytest.raises(FencedTopicError if phase == "fenced" else CutOverTopicError):
                await append(broker, raw("app.orders", 0, b"a"))
        if phase == "fenced":
            # The command goes on where it was.
            broker.cut_overs.renew(shadow, 1)
            await broker.cut_overs.finish(shadow, "refuse", 1)
        await broker.cut_overs.roll_back(broker.shadows.get("prod"), None)
        await append(broker, raw("app.orders", 0, b"b"))


@on_loop
async def test_a_fence_ends_when_its_command_is_silent() -> None:
    async with running_broker(clock=SystemClock(), limits=QUICK) as broker:
        await given_topics(broker)
        shadow = await fenced(broker)
        await until(lambda: broker.shadows.get("prod").phase == "copying")
        note = broker.shadows.get("prod").note
        assert note == f"the cut-over by {OWNER} was given up: the command was not heard of for 1 s. Topics take records again"
        await append(broker, raw("app.orders", 0, b"a", timestamp=SystemClock().now_ms()))
        with pytest.raises(ShadowPhaseError, match=r"has ended: the cut-over by .* was given up"):
            await broker.cut_overs.finish(shadow, "refuse", 1)


@on_loop
async def test_a_fence_that_is_renewed_ends_after_its_longest_time() -> None:
    async with running_broker(clock=SystemClock(), limits=QUICK) as broker:
        await given_topics(broker)
        shadow = await fenced(broker)

        def is_over() -> bool:
            now = broker.shadows.get("prod")
            if now.phase == "fenced":
                broker.cut_overs.renew(now, shadow.fences)
            return now.phase == "copying"

        await until(is_over)
        assert "it was not done within 3 s" in (broker.shadows.get("prod").note or "")


@on_loop
async def test_a_fence_ends_after_a_restart_too() -> None:
    store = MemoryStore()
    async with running_broker(store, clock=SystemClock()) as broker:
        await given_topics(broker)
        await fenced(broker)
    async with running_broker(store, clock=SystemClock(), limits=QUICK) as broker:
        assert broker.shadows.get("prod").phase == "fenced"
        await until(lambda: broker.shadows.get("prod").phase == "copying")


@on_loop
async def test_two_commands_do_not_cut_over_at_once() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        shadow = await created(broker)
        outcomes = await asyncio.gather(
            *(broker.cut_overs.fence(shadow, f"command {number}", "refuse") for number in range(40)), return_exceptions=True
        )
        (winner,) = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(loser, ShadowPhaseError) and "is under way, by command" in str(loser) for loser in losers)
        assert broker.shadows.get("prod").fence == winner.fence
        with pytest.raises(ShadowPhaseError, match="has ended"):
            broker.cut_overs.renew(broker.shadows.get("prod"), winner.fences - 1)


@on_loop
async def test_requests_of_a_command_may_be_repeated() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        shadow = await cut_over(broker, "refuse")
        assert await broker.cut_overs.finish(shadow, "refuse", shadow.fences) == shadow
        with pytest.raises(ShadowPhaseError, match="cut over already, and its producers are 'refuse'"):
            await broker.cut_overs.finish(shadow, "forward", shadow.fences)
        with pytest.raises(ShadowPhaseError, match="roll it back with"):
            await broker.cut_overs.give_up(shadow, shadow.fences, None)
        back = await broker.cut_overs.roll_back(shadow, "moved back")
        assert await broker.cut_overs.roll_back(shadow, None) == back
        assert await broker.cut_overs.give_up(shadow, shadow.fences, None) == back
        assert back.note == "moved back"


@on_loop
async def test_a_fence_that_is_over_does_not_end_the_next_one() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        first = await fenced(broker)
        await unfenced(broker, first)
        second = await broker.cut_overs.fence(first, OWNER, "refuse")
        assert second.fences == 2
        await broker.cut_overs.give_up(second, 1, "late")
        assert broker.shadows.get("prod").phase == "fenced"
        with pytest.raises(ShadowPhaseError, match="has ended"):
            await broker.cut_overs.finish(second, "refuse", 1)


@on_loop
async def test_a_shadow_from_kafka_is_cut_over_without_a_fence() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        shadow = await created(broker, direction="from")
        with pytest.raises(InvalidRequestError, match="can't be fenced from here"):
            await broker.cut_overs.fence(shadow, OWNER, "refuse")
        done = await broker.cut_overs.finish(shadow, "refuse", None)
        assert (done.phase, done.is_copied) == ("cut over", False)
        assert await broker.cut_overs.finish(done, "refuse", None) == done
        await append(broker, raw("app.orders", 0, b"a"))
        back = await broker.cut_overs.roll_back(done, None)
        assert back.is_copied


@on_loop
async def test_open_transactions_are_counted_until_they_end() -> None:
    async with running_broker() as broker:
        await given_topics(broker)
        identity = await broker.transactions.init_producer("tx", TIMEOUT_MS)
        await broker.transactions.add_partitions("tx", identity, [("app.orders", 0), ("app.orders", 1)])
        batch = encode_batch(
            [Record(None, b"a", (), TIMESTAMP)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            transactional=True,
        )
        await append(broker, RawBatch("app.orders", 0, batch))
        shadow = await fenced(broker)
        assert broker.cut_overs.open_transactions(shadow) == 1
        ends = {partition: broker.store.bounds(partition).end for _, partition in broker.cut_overs.partitions(shadow)}
        await broker.transactions.end("tx", identity, committed=True)
        assert broker.cut_overs.open_transactions(shadow) == 0
        after = {partition: broker.store.bounds(partition).end for _, partition in broker.cut_overs.partitions(shadow)}
        assert [after[each] - ends[each] for each in ends] == [1, 0]


@on_loop
async def test_topics_that_routes_lead_to_can_only_be_forwarded() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
        await sql.run("CREATE TOPIC app.orders")
        await sql.run("CREATE TOPIC app.free")
        await sql.run("ALTER TOPIC app.orders ADD SOURCE orders ON INSERT")
        shadow = await created(sql.broker)
        with pytest.raises(RoutedError, match=r"routes from 'orders' lead to topic 'app\.orders'.* Use --producers forward"):
            await sql.broker.cut_overs.fence(shadow, OWNER, "refuse")
        shadow = await sql.broker.cut_overs.fence(shadow, OWNER, "forward")
        with pytest.raises(RoutedError):
            await sql.broker.cut_overs.finish(shadow, "refuse", shadow.fences)
        await sql.broker.cut_overs.finish(shadow, "forward", shadow.fences)


@on_loop
async def test_no_route_is_added_to_a_topic_that_was_cut_over() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
        await sql.run("CREATE TOPIC app.orders")
        await cut_over(sql.broker)
        with pytest.raises(CutOverTopicError):
            await sql.run("ALTER TOPIC app.orders ADD SOURCE orders ON INSERT")


@on_loop
async def test_changes_of_tables_are_not_fenced() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
        await fenced(sql.broker, topics=("_changes.>", "app.>"))
        await sql.run("INSERT INTO orders VALUES (1)")
        assert len(await values_in(sql.broker, "_changes.orders")) == 1
