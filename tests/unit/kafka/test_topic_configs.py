"""Topic configs have their documented effect; configs without effect are rejected."""

import pytest

from tailrace.kafka.topic_configs import CONFIG_NAMES, ConfigSource, parse_configs, show_configs, with_defaults
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.topic import TopicOptions, TopicSettings, with_options


def settings_of(**configs: str | None) -> TopicSettings:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return with_options(TopicSettings(), parse_configs(named.items()).options)


def shown(settings: TopicSettings) -> dict[str, str]:
    return {config.name: config.value for config in show_configs(None, settings, DEFAULT_LIMITS)}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({"retention_ms": "60000"}, TopicSettings(retention_seconds=60)),
        ({"retention_ms": "1500"}, TopicSettings(retention_seconds=2)),
        ({"retention_ms": "-1"}, TopicSettings()),
        ({"retention_bytes": "1048576"}, TopicSettings(retention_max_bytes=1048576)),
        ({"retention_bytes": "-1"}, TopicSettings()),
        ({"max_message_bytes": "1000"}, TopicSettings(max_message_bytes=1000)),
        ({"message_timestamp_type": "LogAppendTime"}, TopicSettings(timestamps="append")),
        ({"message_timestamp_type": "CreateTime"}, TopicSettings()),
        ({"compression_type": "gzip"}, TopicSettings(compression="gzip")),
        ({"compression_type": "uncompressed"}, TopicSettings(compression="none")),
        ({"cleanup_policy": "delete", "compression_type": "producer", "min_insync_replicas": "1"}, TopicSettings()),
        (
            {"tailrace_dedup": "content", "tailrace_dedup_window_ms": "5000"},
            TopicSettings(dedup="content", dedup_window_seconds=5),
        ),
        ({"tailrace_dedup": "none"}, TopicSettings()),
        ({"cleanup_policy": "compact"}, TopicSettings(cleanup_policy="compact")),
        ({"cleanup_policy": "delete, compact"}, TopicSettings(cleanup_policy="compact,delete")),
        ({"delete_retention_ms": "1500"}, TopicSettings(delete_retention_seconds=2)),
        ({"min_compaction_lag_ms": "1"}, TopicSettings(min_compaction_lag_seconds=1)),
        ({"max_compaction_lag_ms": "60000"}, TopicSettings(max_compaction_lag_seconds=60)),
        ({"max_compaction_lag_ms": "9223372036854775807"}, TopicSettings()),
        ({"min_cleanable_dirty_ratio": "0.25"}, TopicSettings(min_dirty_percent=25)),
    ],
)
def test_a_config_sets_what_it_names(configs: dict[str, str], expected: TopicSettings) -> None:
    assert settings_of(**configs) == expected


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cleanup.policy", "shrink", "not one of delete, compact and compact,delete"),
        ("cleanup.policy", "", "not one of delete, compact and compact,delete"),
        ("min.cleanable.dirty.ratio", "half", "not a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "not a number from 0 to 1"),
        ("compression.type", "none", "not one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("min.insync.replicas", "2", "can only be '1'"),
        ("retention.ms", "soon", "retention.ms: 'soon' is not a number"),
        ("message.timestamp.type", "now", "not one of CreateTime, LogAppendTime"),
        ("tailrace.dedup", "sometimes", "not one of none, id, content"),
        ("segment.byte", "1", "unknown topic config 'segment.byte'"),
    ],
)
def test_configs_without_effect_are_rejected(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_configs([(name, value)])


def test_what_is_shown_can_be_set_again() -> None:
    settings = TopicSettings(
        retention_seconds=60,
        retention_max_bytes=10,
        dedup="id",
        dedup_window_seconds=7,
        max_message_bytes=500,
        timestamps="append",
        compression="none",
        cleanup_policy="compact,delete",
        delete_retention_seconds=8,
        min_compaction_lag_seconds=9,
        max_compaction_lag_seconds=10,
        min_dirty_percent=29,
    )
    change = parse_configs(shown(settings).items())
    assert with_options(TopicSettings(), change.options) == settings
    assert set(shown(settings)) == set(CONFIG_NAMES)


def test_a_config_without_a_value_goes_back_to_its_default() -> None:
    change = parse_configs([("retention.ms", None), ("tailrace.alias", None)])
    assert change.options == TopicOptions(retention_seconds=None)
    assert change.alias is None


def test_setting_all_configs_resets_the_others() -> None:
    change = with_defaults(parse_configs([("retention.ms", "1000")]))
    before = TopicSettings(retention_max_bytes=10, timestamps="append")
    assert with_options(before, change.options) == TopicSettings(retention_seconds=1)
    assert change.alias is None


def test_the_source_of_a_config_is_returned() -> None:
    sources = {config.name: config.source for config in show_configs(None, TopicSettings(retention_seconds=1), DEFAULT_LIMITS)}
    assert sources["retention.ms"] is ConfigSource.TOPIC
    assert sources["retention.bytes"] is ConfigSource.DEFAULT


def test_configs_of_compaction_have_the_names_of_kafkas_defaults() -> None:
    shown = {entry.name: entry.server_name for entry in show_configs(None, TopicSettings(), DEFAULT_LIMITS)}
    expected = {
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    }
    assert {name: shown[name] for name in expected} == expected
