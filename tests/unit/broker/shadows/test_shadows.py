"""Definitions of shadows, and what is known of the processes that copy them."""

import asyncio

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.address import parse_address
from tailrace.model.errors import (
    InvalidPatternError,
    LimitExceededError,
    ShadowExistsError,
    ShadowFencedError,
    ShadowPhaseError,
    SqlError,
    UnknownShadowError,
)
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.shadow import CopiedTopics, Shadow, ShadowReport
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import append, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.shadows import created, cut_over, drafted, fenced


@on_loop
async def test_shadows_survive_a_restart_and_their_ids_are_never_used_again() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        first = await created(broker, groups=("a", "b-*"), settings={"client.id": "me"}, throttle_bytes=5_000)
        await created(broker, name="Second", topics=("b.>",))
        await broker.shadows.drop("second")
    async with running_broker(store) as broker:
        assert list(broker.shadows) == [first]
        assert broker.shadows.find("PROD") == first
        third = await created(broker, name="third", topics=("c.>",))
        assert (first.id, third.id) == (1, 3)
        with pytest.raises(UnknownShadowError, match="there is no shadow 'prid'; did you mean 'prod'"):
            broker.shadows.get("prid")


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"name": "PROD"}, ShadowExistsError, "shadow 'PROD' already exists"),
        ({"name": "a.b"}, SqlError, "can't be the name of a shadow"),
        ({"name": "größe"}, SqlError, "can't be the name of a shadow"),
        ({"name": "x" * 65}, SqlError, "at most 64 of them"),
        ({"name": "x", "topics": ("a..b",)}, InvalidPatternError, "has the part ''"),
        ({"name": "x", "topics": ("a", "b", "c")}, LimitExceededError, "3 patterns of topics, more than shadow_patterns"),
        ({"name": "x", "groups": ("a", "b", "c")}, LimitExceededError, "3 patterns of groups, more than shadow_patterns"),
        ({"name": "x", "bootstrap": "here:9092"}, SqlError, "'here:9092' is this server's own Kafka listener"),
        ({"name": "x", "bootstrap": "localhost:19092"}, SqlError, "this server's own"),
        ({"name": "x", "bootstrap": "other:1,127.0.0.1:19092"}, SqlError, "this server's own"),
        ({"name": "x", "topics": ("app.a",)}, ShadowExistsError, "copies app.> to the same Kafka, so .* be copied twice"),
        ({"name": "x", "topics": ("*.*",), "direction": "from"}, ShadowExistsError, "be copied round in circles"),
        ({"name": "x", "topics": ("app.a",), "bootstrap": "other:1,kafka-1:9092"}, ShadowExistsError, "copied twice"),
    ],
)
@on_loop
async def test_what_can_not_be_a_shadow_is_refused(fields: dict[str, object], error: type[Exception], message: str) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, shadow_patterns=2)
    async with running_broker(limits=limits) as broker:
        broker.shadows.own_addresses = (parse_address("0.0.0.0:19092"), parse_address("here:9092"))
        await created(broker)
        with pytest.raises(error, match=message):
            await created(broker, **fields)
        assert len(broker.shadows) == 1


@on_loop
async def test_shadows_of_other_topics_or_of_another_kafka_are_no_circle() -> None:
    async with running_broker() as broker:
        await created(broker)
        await created(broker, name="other", bootstrap="kafka-9:9092")
        await created(broker, name="back", topics=("orders.>",), direction="from")
        await created(broker, name="changes", topics=("_changes.>",))
        with pytest.raises(ShadowExistsError, match="copied twice"):
            await broker.shadows.alter(
                broker.shadows.get("other"), lambda now: msgspec.structs.replace(now, bootstrap="kafka-1:9092")
            )
        assert broker.shadows.get("other").bootstrap == "kafka-9:9092"


@on_loop
async def test_there_is_a_limit_of_shadows() -> None:
    async with running_broker(limits=msgspec.structs.replace(DEFAULT_LIMITS, shadows=2)) as broker:
        await created(broker)
        await created(broker, name="b", topics=("b",))
        with pytest.raises(LimitExceededError, match="there are 2 shadows, as many as shadows allows"):
            await created(broker, name="c", topics=("c",))


@on_loop
async def test_forty_clients_create_one_shadow() -> None:
    async with running_broker() as broker:
        outcomes = await asyncio.gather(*(created(broker) for _ in range(40)), return_exceptions=True)
        assert sum(isinstance(outcome, Shadow) for outcome in outcomes) == 1
        assert all(isinstance(outcome, Shadow | ShadowExistsError) for outcome in outcomes)


@on_loop
async def test_a_shadow_whose_topics_would_take_records_again_is_dropped_only_by_force() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a")
        await fenced(broker)
        with pytest.raises(ShadowPhaseError, match=r"a cut-over is under way, .* use DROP SHADOW prod FORCE"):
            await broker.shadows.drop("prod")
        await broker.shadows.drop("prod", force=True)
        await append(broker, raw("app.a", 0, b"a"))
        await cut_over(broker)
        with pytest.raises(ShadowPhaseError, match="its topics were cut over"):
            await broker.shadows.drop("prod")
        await broker.shadows.drop("prod", force=True)
        await append(broker, raw("app.a", 0, b"b"))
        await cut_over(broker, "forward")
        await broker.shadows.drop("prod")


@on_loop
async def test_a_process_that_attaches_takes_over() -> None:
    async with running_broker() as broker:
        shadow = await created(broker)
        assert broker.shadows.status(shadow).state == "stopped"
        first = broker.shadows.attach(shadow, "first")
        assert broker.shadows.status(shadow).state == "starting"
        second = broker.shadows.attach(shadow, "second")
        with pytest.raises(ShadowFencedError, match=r"is copied by second now\. This process must stop"):
            broker.shadows.report(shadow, first, "first", ShadowReport(state="live"))
        broker.shadows.report(shadow, second, "second", ShadowReport(state="live", records=7))
        status = broker.shadows.status(shadow)
        assert (status.state, status.owner, status.report.records) == ("live", "second", 7)


@on_loop
async def test_a_process_that_is_silent_or_has_ended_is_told_apart() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        shadow = await created(broker)
        epoch = broker.shadows.attach(shadow, "a")
        broker.shadows.report(shadow, epoch, "a", ShadowReport(state="live"))
        broker.shadows.note_exit(shadow, "out of memory")
        status = broker.shadows.status(shadow)
        assert (status.state, status.report.error) == ("retrying", "out of memory")
        broker.shadows.report(shadow, epoch, "a", ShadowReport(state="live"))
        clock.advance(1000 * DEFAULT_LIMITS.shadow_silence_seconds + 1)
        status = broker.shadows.status(shadow)
        assert (status.state, status.report.error) == ("stopped", "the copy process has not reported for 15 s")


@on_loop
async def test_a_shadow_that_nobody_is_to_copy_is_stopped_without_an_error() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        shadow = await created(broker)
        broker.shadows.report(shadow, broker.shadows.attach(shadow, "a"), "a", ShadowReport(state="retrying", error="no route"))
        paused = await broker.shadows.alter(shadow, lambda now: msgspec.structs.replace(now, is_paused=True))
        clock.advance(1000 * DEFAULT_LIMITS.shadow_silence_seconds + 1)
        status = broker.shadows.status(paused)
        assert (status.state, status.report.error, status.report.advice) == ("stopped", None, None)


@on_loop
async def test_after_a_restart_the_first_report_is_believed() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        shadow = await created(broker)
        epoch = broker.shadows.attach(shadow, "a")
    async with running_broker(store) as broker:
        shadow = broker.shadows.get("prod")
        broker.shadows.report(shadow, epoch, "a", ShadowReport(state="back-filling"))
        assert broker.shadows.status(shadow).state == "back-filling"
        assert broker.shadows.attach(shadow, "b") > epoch


@on_loop
async def test_a_change_that_is_none_is_not_written() -> None:
    async with running_broker() as broker:
        shadow = await created(broker)
        before = await _frames(broker)
        await broker.shadows.alter(shadow, lambda now: now)
        assert await _frames(broker) == before


async def _frames(broker: Broker) -> int:
    await broker.committer.settled()
    return broker.store.stats().commits


@pytest.mark.parametrize(
    ("patterns", "included", "left_out"),
    [
        (("app.>",), ["app", "app.a", "app.a.b"], ["apps", "other.app"]),
        (("*",), ["a"], ["a.b", "_routes", "__consumer_offsets"]),
        ((">",), ["a", "a.b", "a.dead_letters"], ["_changes.t", "_held.s", "_routes", "__consumer_offsets", "__x.y"]),
        (("_changes.>",), ["_changes.t", "_changes.a.b"], ["_held.s", "_routes", "a"]),
        (("_routes", "_held.>", "__x"), [], ["_routes", "_held.s", "__x"]),
        (("a", "b.*"), ["a", "b.c"], ["b", "b.c.d"]),
    ],
)
def test_which_topics_are_copied(patterns: tuple[str, ...], included: list[str], left_out: list[str]) -> None:
    topics = CopiedTopics(drafted(topics=patterns), DEFAULT_LIMITS)
    assert [name for name in (*included, *left_out) if topics.includes(name)] == included
