"""Who uses more than its quota waits, for as long as it takes to be within it again, and nobody else does."""

import pytest

from tailrace.broker.security.principals import act_as
from tailrace.broker.security.quotas import LONGEST_WAIT_SECONDS
from tailrace.model.errors import InvalidRequestError, LimitExceededError, QuotaExceededError, TransactionQuotaExceededError
from tailrace.model.limits import Limits
from tailrace.model.quota import DEFAULT, Quota, QuotaEntity, QuotaKind, parse_quota
from tailrace.model.security import SERVER, Principal
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import started

CONCURRENT_TRANSACTIONS = 51
ALICE, BOB = Principal("alice", "192.0.2.1"), Principal("bob", "192.0.2.2")


@on_loop
async def test_without_quotas_nothing_is_counted() -> None:
    async with running_broker() as broker:
        assert not broker.quotas.is_on
        assert broker.quotas.charge(ALICE, "c", "publish_bytes", 10**12) == 0
        broker.quotas.require(ALICE, "c", ("requests", "publish_bytes"))


@on_loop
async def test_who_uses_more_than_its_quota_waits_until_it_is_within_it_again() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        quotas = broker.quotas
        await quotas.alter(QuotaEntity("alice"), {"publish_bytes": 1000.0})
        assert quotas.charge(ALICE, None, "publish_bytes", 1000) == 0
        assert quotas.charge(ALICE, None, "publish_bytes", 500) == 0.5
        clock.advance(250)
        assert quotas.charge(ALICE, None, "publish_bytes", 0) == 0.25
        clock.advance(250)
        assert quotas.charge(ALICE, None, "publish_bytes", 0) == 0
        clock.advance(3_600_000)
        assert quotas.charge(ALICE, None, "publish_bytes", 1001) == 0.001, "no more than a second's worth is saved up"
        assert quotas.charge(BOB, None, "publish_bytes", 10**9) == 0
        assert quotas.charge(ALICE, None, "consume_bytes", 10**9) == 0
        assert quotas.charge(SERVER, None, "publish_bytes", 10**9) == 0


@on_loop
async def test_the_rate_over_a_long_time_is_the_quota() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.quotas.alter(QuotaEntity("alice"), {"consume_bytes": 1_000_000.0})
        sent = 0
        for _ in range(100):
            sent += 700_000
            wait = broker.quotas.charge(ALICE, "c", "consume_bytes", 700_000)
            clock.advance(round(wait * 1000))
        seconds = clock.monotonic()
        assert 0.97 < sent / seconds / 1_000_000 < 1.03


@on_loop
async def test_a_wait_is_bounded_and_the_rest_of_it_is_told_with_the_next_request() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.quotas.alter(QuotaEntity("alice"), {"publish_bytes": 1.0})
        assert broker.quotas.charge(ALICE, "c", "publish_bytes", 100) == LONGEST_WAIT_SECONDS
        clock.advance(30_000)
        assert broker.quotas.charge(ALICE, "c", "publish_bytes", 0) == LONGEST_WAIT_SECONDS
        clock.advance(69_000)
        assert broker.quotas.charge(ALICE, "c", "publish_bytes", 0) == 0


PRECEDENCE = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]
"""Kafka's order: the first of them counts."""


@pytest.mark.parametrize("place", range(len(PRECEDENCE)))
@on_loop
async def test_the_most_special_quota_counts(place: int) -> None:
    async with running_broker() as broker:
        for number, entity in enumerate(PRECEDENCE[place:]):
            await broker.quotas.alter(entity, {"requests": 1.0 if number == 0 else 1000.0})
        assert broker.quotas.charge(ALICE, "app", "requests", 2) == 1.0


@pytest.mark.parametrize(
    ("entity", "shared_with"),
    [
        (QuotaEntity("alice"), [(ALICE, "other")]),
        (QuotaEntity(DEFAULT), [(ALICE, "other")]),
        (QuotaEntity(None, "app"), [(BOB, "app")]),
        (QuotaEntity(None, DEFAULT), [(BOB, "app")]),
        (QuotaEntity("alice", "app"), []),
        (QuotaEntity(DEFAULT, DEFAULT), []),
    ],
)
@on_loop
async def test_who_shares_a_quota(entity: QuotaEntity, shared_with: list[tuple[Principal, str]]) -> None:
    async with running_broker() as broker:
        await broker.quotas.alter(entity, {"requests": 1.0})
        assert broker.quotas.charge(ALICE, "app", "requests", 3) == 2.0
        waiting = [
            (who, client)
            for who, client in ((ALICE, "other"), (BOB, "app"), (BOB, "other"))
            if broker.quotas.charge(who, client, "requests", 0)
        ]
        assert waiting == shared_with


@on_loop
async def test_a_request_over_the_quota_is_refused_with_the_time_to_wait() -> None:
    async with running_broker() as broker:
        await broker.quotas.alter(QuotaEntity("alice"), {"requests": 10.0})
        broker.quotas.require(ALICE, None, ("requests",))
        broker.quotas.charge(ALICE, None, "requests", 25)
        with pytest.raises(QuotaExceededError, match=r"has used up its quota of requests; try again in 1\.5 s") as refused:
            broker.quotas.require(ALICE, None, ("publish_bytes", "requests"))
        assert (refused.value.retry_after_seconds, refused.value.http_status) == (1.5, 429)
        assert broker.quotas.throttled["requests"] == 2


@pytest.mark.parametrize("kind", ["connections", "open_transactions"])
@on_loop
async def test_no_more_are_held_than_the_quota_allows(kind: QuotaKind) -> None:
    async with running_broker() as broker:
        quotas = broker.quotas
        first = quotas.hold(ALICE, "a", kind)
        await quotas.alter(QuotaEntity("alice"), {kind: 2.0})
        second = quotas.hold(ALICE, "b", kind)
        with pytest.raises(QuotaExceededError, match=r"'alice' has 2 \w+( \w+)?, as many as"):
            quotas.hold(ALICE, "a", kind)
        quotas.hold(BOB, "a", kind)
        first()
        first()
        quotas.hold(ALICE, "c", kind)
        with pytest.raises(QuotaExceededError):
            quotas.hold(ALICE, "c", kind)
        second()
        quotas.hold(ALICE, "c", kind)


@on_loop
async def test_quotas_are_there_after_a_restart_and_gone_when_they_are_removed() -> None:
    store = MemoryStore(ManualClock())
    entity = QuotaEntity(DEFAULT, "app")
    async with running_broker(store) as broker:
        await broker.quotas.alter(entity, {"requests": 5.0, "sql_seconds": 0.5})
        await broker.quotas.alter(entity, {"sql_seconds": None, "publish_bytes": 7.0})
        await broker.quotas.alter(QuotaEntity("alice"), {"requests": 1.0})
        await broker.quotas.alter(QuotaEntity("alice"), {"requests": None})
    async with running_broker(store) as broker:
        assert list(broker.quotas) == [Quota(entity=entity, values={"requests": 5.0, "publish_bytes": 7.0})]
        assert broker.quotas.kinds == {"requests", "publish_bytes"}
        await broker.quotas.alter(entity, {"requests": None, "publish_bytes": None})
        assert not broker.quotas.is_on
        assert list(broker.quotas) == []


@pytest.mark.parametrize(
    ("entity", "kind", "value"),
    [
        (QuotaEntity(), "requests", 1.0),
        (QuotaEntity(""), "requests", 1.0),
        (QuotaEntity("x" * 300), "requests", 1.0),
        (QuotaEntity("alice"), "requests", 0.0),
        (QuotaEntity("alice"), "requests", -1.0),
        (QuotaEntity("alice"), "requests", float("nan")),
        (QuotaEntity("alice"), "requests", float("inf")),
        (QuotaEntity("alice"), "connections", 1.5),
    ],
)
@on_loop
async def test_quotas_that_are_none_are_refused(entity: QuotaEntity, kind: QuotaKind, value: float) -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError):
            await broker.quotas.alter(entity, {kind: value})
        assert list(broker.quotas) == []


@on_loop
async def test_quotas_are_bounded() -> None:
    async with running_broker(limits=Limits(quotas=1)) as broker:
        await broker.quotas.alter(QuotaEntity("alice"), {"requests": 1.0})
        with pytest.raises(LimitExceededError, match="as many as quotas allows"):
            await broker.quotas.alter(QuotaEntity("bob"), {"requests": 1.0})
        await broker.quotas.alter(QuotaEntity("alice"), {"requests": 2.0})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("publish_bytes", "10 MB/s", 10e6),
        ("publish_bytes", "10MiB", 10 * 1024**2),
        ("consume_bytes", "1.5 kb/s", 1500),
        ("consume_bytes", "6 MB/min", 100_000),
        ("requests", "100/s", 100),
        ("requests", "30/min", 0.5),
        ("sql_seconds", "30 s/min", 0.5),
        ("sql_seconds", "0.25", 0.25),
        ("sql_seconds", "6 min/h", 0.1),
        ("connections", "50", 50),
    ],
)
def test_quotas_are_read_from_text(kind: QuotaKind, text: str, value: float) -> None:
    assert parse_quota(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("publish_bytes", "fast"),
        ("publish_bytes", "10 m/s"),
        ("publish_bytes", "-1"),
        ("publish_bytes", "0 MB/s"),
        ("requests", "10 MB/s"),
        ("requests", "1/year"),
        ("connections", "50/s"),
        ("connections", "1.5"),
        ("sql_seconds", "10 MB/s"),
        ("sql_seconds", "9" * 100),
    ],
)
def test_text_that_is_no_quota_is_refused(kind: QuotaKind, text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_quota(kind, text)


@pytest.mark.parametrize("newer", [False, True])
@on_loop
async def test_a_user_has_no_more_open_transactions_than_its_quota(newer: bool) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await broker.quotas.alter(QuotaEntity("alice"), {"open_transactions": 1.0})
        act_as(ALICE)
        first, second = [await started(broker, name, newer=newer) for name in ("first", "second")]
        for _ in range(3):
            await first.write(0, b"a")
            with pytest.raises(TransactionQuotaExceededError) as refused:
                await second.write(0, b"b")
            assert refused.value.kafka_code == CONCURRENT_TRANSACTIONS
            await first.abort()
            second = await started(broker, "second", newer=newer)
            await second.write(0, b"b")
            await second.commit()
        act_as(BOB)
        third, fourth = [await started(broker, name, newer=newer) for name in ("third", "fourth")]
        await third.write(0, b"c")
        await fourth.write(0, b"d")
        act_as(SERVER)
