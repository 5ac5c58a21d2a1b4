"""Configs that belong to no topic are shown as they are in force, and only what promises nothing may be set."""

import pytest

from tailrace.kafka.cluster import KafkaSettings
from tailrace.model.limits import Limits
from tailrace.wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.support.aio import on_loop
from tests.support.kafka import Asker, running_asker

BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 4, 8, 16, 32
SET, DELETE = 0, 1
NONE, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42
TELEMETRY = KafkaSettings(client_telemetry=True)
RATE = "leader.replication.throttled.rate"


async def alter(asker: Asker, kind: int, name: str, config: str, value: str | None) -> tuple[int, str]:
    wanted = IncrementalAlterableConfig(name=config, value=value, config_operation=DELETE if value is None else SET)
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=(wanted,))
    (result,) = (
        await asker.ask(INCREMENTAL_ALTER_CONFIGS_API, IncrementalAlterConfigsRequest(resources=(resource,)))
    ).responses
    return result.error_code, result.error_message or ""


async def described(asker: Asker, kind: int, name: str) -> tuple[int, dict[str, str | None]]:
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = (await asker.ask(DESCRIBE_CONFIGS_API, DescribeConfigsRequest(resources=(wanted,)))).results
    assert all(config.read_only for config in result.configs)
    return result.error_code, {config.name: config.value for config in result.configs}


@pytest.mark.parametrize(
    ("kind", "name", "config", "value", "code"),
    [
        (BROKER, "0", RATE, "1000", NONE),
        (BROKER, "", RATE, "0", NONE),
        (BROKER, "0", RATE, None, NONE),
        (BROKER, "0", RATE, "-1", INVALID_CONFIG),
        (BROKER, "0", RATE, "fast", INVALID_CONFIG),
        (BROKER, "0", "log.cleaner.threads", "2", INVALID_CONFIG),
        (BROKER, "0", "log.cleaner.threads", None, NONE),
        (BROKER, "0", "num.partitions", None, INVALID_CONFIG),
        (BROKER, "7", RATE, "1000", INVALID_REQUEST),
        (BROKER_LOGGER, "0", "root", "DEBUG", INVALID_REQUEST),
        (GROUP, "billing", "consumer.session.timeout.ms", "50000", INVALID_CONFIG),
        (GROUP, "billing", "consumer.session.timeout.ms", None, NONE),
        (GROUP, "billing", RATE, "1000", INVALID_CONFIG),
        (GROUP, "", "consumer.session.timeout.ms", None, INVALID_REQUEST),
        (CLIENT_METRICS, "tailrace", "interval.ms", "1000", INVALID_CONFIG),
        (CLIENT_METRICS, "tailrace", "interval.ms", None, INVALID_CONFIG),
        (CLIENT_METRICS, "other", "interval.ms", "1000", INVALID_CONFIG),
    ],
)
@on_loop
async def test_only_throttles_of_replication_are_set_and_only_what_was_never_set_is_deleted(
    kind: int, name: str, config: str, value: str | None, code: int
) -> None:
    async with running_asker(TELEMETRY) as asker:
        before = await described(asker, kind, name)
        found, message = await alter(asker, kind, name, config, value)
        assert (found, bool(message)) == (code, code != NONE)
        assert await described(asker, kind, name) == before


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [
        (BROKER, "0", "configuration file"),
        (GROUP, "g", "limits.group_consumer_session"),
        (CLIENT_METRICS, "x", "kafka.client_"),
    ],
)
@on_loop
async def test_a_refusal_says_where_the_config_is_set(kind: int, name: str, setting: str) -> None:
    async with running_asker(TELEMETRY) as asker:
        _, message = await alter(asker, kind, name, "interval.ms", "1")
        assert setting in message


@on_loop
async def test_all_configs_at_once_are_checked_as_one_by_one() -> None:
    async with running_asker() as asker:
        for configs, code in (((), NONE), (((RATE, "5"),), NONE), (((RATE, "5"), ("num.partitions", "3")), INVALID_CONFIG)):
            wanted = tuple(AlterableConfig(name=name, value=value) for name, value in configs)
            resource = AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=wanted)
            (result,) = (await asker.ask(ALTER_CONFIGS_API, AlterConfigsRequest(resources=(resource,)))).responses
            assert result.error_code == code


@on_loop
async def test_groups_show_the_timeouts_that_are_in_force() -> None:
    limits = Limits(group_consumer_session_timeout_ms=30_000, group_consumer_heartbeat_interval_ms=3_000)
    async with running_asker(limits=limits) as asker:
        in_force = {"consumer.session.timeout.ms": "30000", "consumer.heartbeat.interval.ms": "3000"}
        assert await described(asker, GROUP, "billing") == (NONE, in_force)
        assert await described(asker, GROUP, "") == (INVALID_REQUEST, {})
