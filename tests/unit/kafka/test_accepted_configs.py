"""Configs of Kafka without effect are checked, accepted and shown as what is in force."""

import pytest

from tailrace.kafka.accepted_configs import ACCEPTED
from tailrace.kafka.topic_configs import ConfigSource, parse_configs, show_configs
from tailrace.log.options import DEFAULT_OPTIONS
from tailrace.model.commit import Durability
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.topic import TopicOptions, TopicSettings
from tailrace.wire.messages.configs import (
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tailrace.wire.messages.topics import (
    CREATE_TOPICS_API,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.support.aio import on_loop
from tests.support.brokers import options
from tests.support.kafka import Asker, running_asker

TOPIC, TOPIC_SOURCE, DEFAULT_SOURCE = 2, 1, 5
LONGEST = str((1 << 63) - 1)


def shown(durability: Durability = "fsync") -> dict[str, str]:
    entries = show_configs(None, TopicSettings(), DEFAULT_LIMITS, durability)
    return {entry.name: entry.value for entry in entries if entry.name in ACCEPTED}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "52428800"),
        ("segment.ms", "1"),
        ("segment.jitter.ms", "0"),
        ("segment.index.bytes", "4"),
        ("flush.messages", "1000"),
        ("flush.ms", LONGEST),
        ("file.delete.delay.ms", "60000"),
        ("index.interval.bytes", "4096"),
        ("preallocate", "FALSE"),
        ("unclean.leader.election.enable", "true"),
        ("message.timestamp.before.max.ms", LONGEST),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.downconversion.enable", "true"),
        ("message.format.version", "2.8-IV1"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:0, 1:0"),
        ("remote.storage.enable", "false"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("local.retention.ms", "-2"),
        ("local.retention.bytes", "1"),
        ("compression.gzip.level", "9"),
        ("compression.lz4.level", "17"),
        ("compression.zstd.level", "-131072"),
    ],
)
def test_a_config_without_effect_is_accepted_and_changes_nothing(name: str, value: str) -> None:
    change = parse_configs([(name, value)])
    assert change.options == TopicOptions()
    assert parse_configs([(name, None)]).options == TopicOptions()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("segment.bytes", "1048575", "segment.bytes: 1048575 is not from 1048576 to 2147483647"),
        ("segment.bytes", "2147483648", "not from 1048576 to 2147483647"),
        ("segment.bytes", "1_048_576", "is not a number of 32 bits"),
        ("segment.ms", "0", "0 is not from 1 to"),
        ("segment.ms", "9223372036854775808", "not from 1 to 9223372036854775807"),
        ("segment.ms", "9" * 5_000, "is not a number of 64 bits"),
        ("segment.jitter.ms", "-1", "-1 is not from 0"),
        ("segment.index.bytes", "3", "3 is not from 4"),
        ("flush.messages", "0", "0 is not from 1"),
        ("flush.ms", "-1", "-1 is not from 0"),
        ("preallocate", "yes", "'yes' is not true or false"),
        ("message.format.version", "newest", "is not a version of Kafka"),
        ("leader.replication.throttled.replicas", "0", "list of partition:broker"),
        ("local.retention.ms", "-3", "-3 is not from -2"),
        ("compression.gzip.level", "0", "0 is not from 1 to 9, and not -1"),
        ("compression.lz4.level", "18", "18 is not from 1 to 17"),
        ("compression.zstd.level", "23", "23 is not from -131072 to 22"),
    ],
)
def test_what_kafka_rejects_is_rejected(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_configs([(name, value)])


@pytest.mark.parametrize(
    ("name", "value", "durability", "why"),
    [
        ("remote.storage.enable", "true", "fsync", "there is no remote storage"),
        ("message.timestamp.before.max.ms", "1000", "fsync", "records of any age are stored"),
        ("message.timestamp.after.max.ms", "1000", "fsync", "timestamp_ahead_ms"),
        ("message.timestamp.after.max.ms", LONGEST, "fsync", "timestamp_ahead_ms"),
        ("flush.messages", "1", "relaxed", "relaxed durability"),
        ("flush.ms", "99", "relaxed", "relaxed durability"),
    ],
)
def test_what_would_promise_more_than_the_server_keeps_is_rejected(
    name: str, value: str, durability: Durability, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_configs([(name, value)], DEFAULT_LIMITS, durability)


def test_a_weaker_wish_than_the_server_keeps_is_accepted() -> None:
    assert parse_configs([("flush.messages", "1")], DEFAULT_LIMITS, "fsync").without_effect == ()
    assert parse_configs([("flush.ms", "1000")], DEFAULT_LIMITS, "relaxed").without_effect == ("flush.ms",)


def test_what_is_in_force_is_shown_whatever_was_asked_for() -> None:
    assert shown()["segment.bytes"] == str(DEFAULT_OPTIONS.segment_bytes)
    assert (shown()["flush.messages"], shown()["flush.ms"]) == ("1", "0")
    assert shown("relaxed")["flush.messages"] == LONGEST
    assert shown("relaxed")["flush.ms"] == str(round(DEFAULT_OPTIONS.relaxed_sync_seconds * 1000))
    assert shown()["message.timestamp.after.max.ms"] == str(DEFAULT_LIMITS.timestamp_ahead_ms)
    entries = show_configs(None, TopicSettings(), DEFAULT_LIMITS)
    assert {(entry.source, entry.read_only) for entry in entries if entry.name in ACCEPTED} == {(ConfigSource.DEFAULT, True)}


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_what_is_shown_is_accepted_as_no_change(durability: Durability) -> None:
    change = parse_configs(shown(durability).items(), DEFAULT_LIMITS, durability)
    assert (change.options, change.without_effect) == (TopicOptions(), ())


async def described(asker: Asker, *names: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=names)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    (result,) = (await asker.ask(DESCRIBE_CONFIGS_API, request)).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


@on_loop
async def test_a_repartition_topic_of_kafka_streams_is_created(caplog: pytest.LogCaptureFixture) -> None:
    configs = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    }
    wanted = CreatableTopic(
        name="orders",
        num_partitions=2,
        replication_factor=3,
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs.items()),
    )
    async with running_asker() as asker:
        (created,) = (await asker.ask(CREATE_TOPICS_API, CreateTopicsRequest(topics=(wanted,)))).topics
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 2, 1)
        in_force = {config.name: config.value for config in created.configs}
        assert in_force["segment.bytes"] == str(DEFAULT_OPTIONS.segment_bytes)
    assert "topic 'orders': accepted without effect: segment.bytes;" in caplog.text


@on_loop
async def test_an_accepted_config_is_altered_deleted_and_described() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        for operation, value in ((0, "104857600"), (1, None)):
            config = IncrementalAlterableConfig(name="segment.bytes", value=value, config_operation=operation)
            resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=(config,))
            request = IncrementalAlterConfigsRequest(resources=(resource,))
            assert (await asker.ask(INCREMENTAL_ALTER_CONFIGS_API, request)).responses[0].error_code == 0
        found = (await described(asker, "segment.bytes"))["segment.bytes"]
        assert (found.value, found.read_only, found.config_source) == ("134217728", True, DEFAULT_SOURCE)
        assert "Accepted without effect" in (found.documentation or "")
        assert [(each.name, each.value, each.source) for each in found.synonyms] == [
            ("log.segment.bytes", "134217728", DEFAULT_SOURCE)
        ]


@on_loop
async def test_synonyms_are_the_topics_own_value_and_the_default() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", options=options(retention_seconds=5))
        found = await described(asker, "retention.ms", "max.message.bytes", "min.insync.replicas")
        assert [(each.name, each.value, each.source) for each in found["retention.ms"].synonyms] == [
            ("retention.ms", "5000", TOPIC_SOURCE),
            ("log.retention.ms", "-1", DEFAULT_SOURCE),
        ]
        assert [each.name for each in found["max.message.bytes"].synonyms] == ["message.max.bytes"]
        assert [each.name for each in found["min.insync.replicas"].synonyms] == ["min.insync.replicas"]
