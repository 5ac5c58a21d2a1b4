"""Clients push metrics as they are told to, and each is shown once for all clients of a program."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from tailrace.kafka.cluster import KafkaSettings
from tailrace.kafka.metrics import KafkaCollector
from tailrace.model.limits import DEFAULT_LIMITS, KIB, Limits
from tailrace.wire.compression import Compression, compress
from tailrace.wire.message import NO_UUID
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersionsRequest
from tailrace.wire.messages.configs import (
    DESCRIBE_CONFIGS_API,
    LIST_CONFIG_RESOURCES_API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from tailrace.wire.messages.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS_API,
    PUSH_TELEMETRY_API,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from tests.support.aio import on_loop
from tests.support.clocks import ManualClock
from tests.support.kafka import Asker, running_asker
from tests.support.otlp import metric, metrics_data

ON = KafkaSettings(client_telemetry=True)
NONE, INVALID_REQUEST, UNSUPPORTED_COMPRESSION, INVALID_RECORD, THROTTLED = 0, 42, 76, 87, 89
UNKNOWN_SUBSCRIPTION, TOO_LARGE = 117, 118
CLIENT_METRICS = 16
RATE, TOTAL = "org.apache.kafka.producer.connection.creation.rate", "org.apache.kafka.producer.connection.creation.total"
PUSHED = metrics_data([metric(RATE, 0.5), metric(TOTAL, 7, is_sum=True)])


async def ask(asker: Asker, instance_id: UUID = NO_UUID) -> Any:
    return await asker.ask(GET_TELEMETRY_SUBSCRIPTIONS_API, GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


async def push(asker: Asker, instance_id: UUID, metrics: bytes = PUSHED, **fields: Any) -> int:
    telemetry = asker.traffic.telemetry
    assert telemetry is not None
    given: dict[str, Any] = {"subscription_id": telemetry.subscription.id, **fields}
    request = PushTelemetryRequest(client_instance_id=instance_id, metrics=metrics, **given)
    code: int = (await asker.ask(PUSH_TELEMETRY_API, request)).error_code
    return code


def shown(asker: Asker) -> dict[tuple[str, str], float]:
    (family,) = (each for each in KafkaCollector(asker.traffic).collect() if each.name == "tailrace_kafka_client_metric")
    return {(sample.labels["client"], sample.labels["metric"]): sample.value for sample in family.samples}


def counted(asker: Asker, name: str) -> dict[str, float]:
    (family,) = (each for each in KafkaCollector(asker.traffic).collect() if each.name == f"tailrace_kafka_{name}")
    return {next(iter(sample.labels.values()), ""): sample.value for sample in family.samples}


@on_loop
async def test_a_client_learns_what_to_push() -> None:
    async with running_asker(KafkaSettings(client_telemetry=True, telemetry_interval_seconds=30)) as asker:
        given = await ask(asker)
        assert (given.error_code, given.push_interval_ms, given.telemetry_max_bytes) == (
            NONE,
            30_000,
            DEFAULT_LIMITS.telemetry_bytes,
        )
        assert given.client_instance_id != NO_UUID
        assert (given.requested_metrics, given.delta_temporality) == (("org.apache.kafka.",), False)
        assert set(given.accepted_compression_types) == {1, 2, 3, 4}
        other = await ask(asker)
        assert other.client_instance_id != given.client_instance_id
        assert other.subscription_id == given.subscription_id
        named = uuid4()
        assert (await ask(asker, named)).client_instance_id == named


@pytest.mark.parametrize("codec", Compression)
@on_loop
async def test_pushed_metrics_are_shown(codec: Compression) -> None:
    async with running_asker(ON) as asker:
        given = await ask(asker)
        pushed = bytes(compress(codec, PUSHED))
        assert await push(asker, given.client_instance_id, pushed, compression_type=codec) == NONE
        assert shown(asker) == {("test", RATE): 0.5, ("test", TOTAL): 7.0}
        assert counted(asker, "client_metrics_clients") == {"": 1.0}
        assert counted(asker, "client_metrics_pushes") == {"accepted": 1.0}


@on_loop
async def test_a_push_takes_the_place_of_the_one_before() -> None:
    clock = ManualClock()
    async with running_asker(ON, clock=clock) as asker:
        client = (await ask(asker)).client_instance_id
        assert await push(asker, client) == NONE
        clock.advance(60_000)
        assert await push(asker, client, metrics_data([metric(TOTAL, 9, is_sum=True)])) == NONE
        assert shown(asker) == {("test", TOTAL): 9.0}


@on_loop
async def test_clients_of_one_program_are_shown_as_one() -> None:
    async with running_asker(ON) as asker:
        telemetry = asker.traffic.telemetry
        assert telemetry is not None
        for number in range(3):
            client = (await ask(asker)).client_instance_id
            pushed = metrics_data([metric(RATE, float(number)), metric(TOTAL, 10, is_sum=True)])
            assert await push(asker, client, pushed) == NONE
        assert shown(asker) == {("test", RATE): 2.0, ("test", TOTAL): 30.0}


@pytest.mark.parametrize(
    ("client_id", "label"),
    [
        ("rdkafka", "rdkafka"),
        ("consumer-billing-17", "consumer-billing-*"),
        ("app-9cb9e2b5-39ba-4cb5-8db4-6f0d7a3f1e42-StreamThread-1-consumer", "app-*-StreamThread-*-consumer"),
        ("x" * 500, "x" * 100),
        (None, ""),
    ],
)
@on_loop
async def test_the_label_of_a_client_is_its_id_without_numbers(client_id: str | None, label: str) -> None:
    async with running_asker(ON) as asker:
        telemetry = asker.traffic.telemetry
        assert telemetry is not None
        context: Any = type("Context", (), {"client_id": client_id, "client": type("Client", (), {"connection": 1})})
        client = telemetry.subscribe(context, NO_UUID)
        request = PushTelemetryRequest(
            client_instance_id=client, subscription_id=telemetry.subscription.id, metrics=metrics_data([metric(RATE, 1)])
        )
        await telemetry.push(context, request)
        assert telemetry.shown() == {(label, RATE): 1.0}


@on_loop
async def test_pushes_that_come_too_often_are_throttled() -> None:
    clock = ManualClock()
    async with running_asker(ON, clock=clock) as asker:
        client = (await ask(asker)).client_instance_id
        assert await push(asker, client) == NONE
        assert await push(asker, client, metrics_data([metric(TOTAL, 8, is_sum=True)])) == THROTTLED
        assert (await ask(asker, client)).error_code == THROTTLED
        assert shown(asker)["test", TOTAL] == 7.0
        clock.advance(59_000)
        assert await push(asker, client) == NONE
        assert counted(asker, "client_metrics_pushes") == {"accepted": 2.0, "TelemetryThrottledError": 1.0}


@on_loop
async def test_the_last_push_of_a_client_is_never_too_early_and_ends_it() -> None:
    async with running_asker(ON) as asker:
        client = (await ask(asker)).client_instance_id
        assert await push(asker, client) == NONE
        assert await push(asker, client, terminating=True) == NONE
        assert shown(asker) == {}
        assert await push(asker, client, terminating=True) == INVALID_REQUEST


@on_loop
async def test_a_client_with_another_subscription_asks_again_at_once() -> None:
    async with running_asker(ON) as asker:
        client = (await ask(asker)).client_instance_id
        assert await push(asker, client, subscription_id=-5) == UNKNOWN_SUBSCRIPTION
        given = await ask(asker, client)
        assert given.error_code == NONE
        assert await push(asker, client, subscription_id=given.subscription_id) == NONE


@on_loop
async def test_a_client_that_the_server_does_not_know_goes_on_pushing() -> None:
    async with running_asker(ON) as asker:
        assert await push(asker, uuid4()) == NONE
        assert shown(asker)["test", TOTAL] == 7.0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"instance_id": NO_UUID}, INVALID_REQUEST),
        ({"compression_type": 5}, UNSUPPORTED_COMPRESSION),
        ({"compression_type": -1}, UNSUPPORTED_COMPRESSION),
        ({"metrics": b"\xff"}, INVALID_RECORD),
        ({"metrics": bytes(300 * KIB)}, TOO_LARGE),
        ({"metrics": bytes(compress(Compression.ZSTD, bytes(10_000_000))), "compression_type": 4}, TOO_LARGE),
        ({"metrics": bytes(compress(Compression.GZIP, bytes(10_000_000))), "compression_type": 1}, TOO_LARGE),
        ({"metrics": b"no frame", "compression_type": 4}, INVALID_RECORD),
    ],
)
@on_loop
async def test_what_can_not_be_kept_is_refused(fields: dict[str, Any], code: int) -> None:
    async with running_asker(ON) as asker:
        client = (await ask(asker)).client_instance_id
        assert await push(asker, **{"instance_id": client, **fields}) == code
        assert shown(asker) == {}
        assert asker.traffic.handler_faults == 0


@on_loop
async def test_metrics_that_were_not_asked_for_are_dropped_and_counted() -> None:
    async with running_asker(ON) as asker:
        client = (await ask(asker)).client_instance_id
        names = ("process.cpu", "org.apache.kafka." + "x" * 300, 'org.apache.kafka.a"b')
        assert await push(asker, client, metrics_data([metric(name, 1) for name in (*names, RATE)])) == NONE
        assert shown(asker) == {("test", RATE): 1.0}
        assert counted(asker, "client_metrics_dropped") == {"": 3.0}


@on_loop
async def test_the_metrics_of_all_clients_are_bounded() -> None:
    clock = ManualClock()
    async with running_asker(ON, clock=clock, limits=Limits(client_metrics=5)) as asker:
        first, second = [(await ask(asker)).client_instance_id for _ in range(2)]
        many = metrics_data([metric(f"org.apache.kafka.m{number}", number) for number in range(4)])
        assert [await push(asker, client, many) for client in (first, second)] == [NONE, NONE]
        assert counted(asker, "client_metrics_dropped") == {"": 3.0}
        assert await push(asker, first, terminating=True) == NONE
        clock.advance(60_000)
        assert await push(asker, second, many) == NONE
        assert len(shown(asker)) == 4


@on_loop
async def test_the_longest_silent_clients_are_forgotten_first() -> None:
    async with running_asker(ON, limits=Limits(telemetry_clients=2)) as asker:
        clients = [uuid4() for _ in range(3)]
        for number, client in enumerate(clients):
            assert await push(asker, client, metrics_data([metric(f"org.apache.kafka.of.{number}", 1)])) == NONE
        assert {name[-1] for _, name in shown(asker)} == {"1", "2"}


@on_loop
async def test_clients_that_are_silent_are_not_shown_any_more() -> None:
    clock = ManualClock()
    async with running_asker(ON, clock=clock) as asker:
        assert await push(asker, uuid4()) == NONE
        clock.advance(179_000)
        assert len(shown(asker)) == 2
        clock.advance(1_001)
        assert shown(asker) == {}
        assert counted(asker, "client_metrics_clients") == {"": 0.0}


@on_loop
async def test_many_pushes_at_once_are_decoded_or_throttled() -> None:
    async with running_asker(ON, limits=Limits(client_metrics=10_000)) as asker:
        codes = await asyncio.gather(*(push(asker, uuid4()) for _ in range(150)))
        assert set(codes) == {NONE, THROTTLED}
        assert shown(asker)["test", TOTAL] == 7.0 * codes.count(NONE)


@on_loop
async def test_clients_are_offered_nothing_unless_it_is_on() -> None:
    async with running_asker(KafkaSettings()) as asker:
        told = await asker.ask(API_VERSIONS_API, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        assert {71, 72}.isdisjoint(each.api_key for each in told.api_keys)
        listed = await asker.ask(LIST_CONFIG_RESOURCES_API, ListConfigResourcesRequest(), 0)
        assert listed.config_resources == ()
        assert shown(asker) == {}


@on_loop
async def test_the_subscription_is_described() -> None:
    async with running_asker(KafkaSettings(client_telemetry=True, telemetry_interval_seconds=7)) as asker:
        resources = [
            DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
            for name in ("tailrace", "other")
        ]
        found, unknown = (await asker.ask(DESCRIBE_CONFIGS_API, DescribeConfigsRequest(resources=tuple(resources)))).results
        assert {config.name: config.value for config in found.configs} == {
            "interval.ms": "7000",
            "match": "",
            "metrics": "org.apache.kafka.",
        }
        assert {config.read_only for config in found.configs} == {True}
        assert unknown.error_code == INVALID_REQUEST
