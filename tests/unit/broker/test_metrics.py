from prometheus_client import CollectorRegistry, generate_latest

from tailrace.broker.broker import Broker
from tailrace.broker.metrics import BrokerCollector
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import Offset
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import append, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.offsets import up_to
from tests.support.shadows import created, report


def scrape(broker: Broker) -> dict[str, float]:
    """Return every sample of the metrics page by its name and labels."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@on_loop
async def test_traffic_is_shown_by_topic() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.t")
        batch = raw("app.t", 0, b"a", b"b")
        await append(broker, batch)
        await broker.fetcher.fetch([PartitionFetch("app.t", 0, Offset(0), 1000)])
        shown = scrape(broker)
        assert shown['tailrace_messages_in_total{topic="app.t"}'] == 2
        assert shown['tailrace_bytes_in_total{topic="app.t"}'] == len(batch.batch)
        assert shown['tailrace_messages_out_total{topic="app.t"}'] == 2
        assert shown['tailrace_bytes_out_total{topic="app.t"}'] == len(batch.batch)


@on_loop
async def test_shadows_are_shown_and_what_is_held_for_them() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a", options=options(retention_max_bytes=1))
        shadow = await created(broker)
        batch = raw("app.a", 0, b"a")
        for _ in range(3):
            await append(broker, batch)
        shown = scrape(broker)
        assert 'tailrace_shadow_lag_seconds{shadow="prod"}' not in shown
        report(broker, shadow, app_a=1)
        await broker.retention.run_once()
        await broker.cut_overs.fence(shadow, "me", "refuse")
        shown = scrape(broker)
        found = {name: shown[f'tailrace_shadow_{name}{{shadow="prod"}}'] for name in ("live", "lag", "fenced", "records_total")}
        assert found == {"live": 1, "lag": 2, "fenced": 1, "records_total": 0}
        assert shown["tailrace_retention_held_bytes"] == len(batch.batch)


@on_loop
async def test_lag_duplicates_and_retention_are_shown() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(dedup="id", retention_seconds=60))
        await broker.publisher.publish([Message("t", b"", message_id="a"), Message("t", b"", message_id="a")])
        await broker.publisher.publish([Message("t", b"", message_id="b")])
        await broker.offsets.commit("g", [up_to("t", 0, 1)])
        clock.advance(3_600_000)
        await broker.retention.run_once()
        await broker.dedup.clean()
        shown = scrape(broker)
        assert shown['tailrace_group_lag{group="g",topic="t"}'] == 1
        assert shown['tailrace_dedup_hits_total{topic="t"}'] == 1
        assert shown["tailrace_dedup_cleaned_total"] == 2
        assert shown['tailrace_retention_trimmed_messages_total{topic="t"}'] == 2
        assert shown['tailrace_job_failures_total{job="retention"}'] == 0
        assert (shown["tailrace_topics"], shown["tailrace_partitions"], shown["tailrace_groups"]) == (1, 1, 1)


@on_loop
async def test_the_store_is_shown_with_its_distributions() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        stats = store.stats()
        stats.replayed_bytes = 77
        for seconds in (0.0002, 0.002, 99.0):
            stats.sync_seconds.observe(seconds)
        shown = scrape(broker)
        assert shown["tailrace_replayed_bytes"] == 77
        assert shown['tailrace_sync_seconds_bucket{le="0.0001"}'] == 0
        assert shown['tailrace_sync_seconds_bucket{le="0.00025"}'] == 1
        assert shown['tailrace_sync_seconds_bucket{le="10"}'] == 2
        assert shown['tailrace_sync_seconds_bucket{le="+Inf"}'] == shown["tailrace_sync_seconds_count"] == 3
        assert abs(shown["tailrace_sync_seconds_sum"] - 99.0022) < 1e-9


@on_loop
async def test_two_brokers_can_be_shown_in_one_process() -> None:
    async with running_broker() as one, running_broker() as other:
        await one.topics.create("t")
        assert scrape(one)["tailrace_topics"] == 1
        assert scrape(other)["tailrace_topics"] == 0
