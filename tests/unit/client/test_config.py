"""Settings are read under their own names and Kafka's, and rejected with what is allowed."""

from datetime import timedelta
from typing import Any

import pytest

from tailrace.client import AutoOffsetReset, ConfigurationError, ConsumerConfig, PublisherConfig, QueueConfig
from tailrace.client.config import CONSUMER_SETTINGS, PUBLISHER_SETTINGS, QUEUE_SETTINGS

LEAST = {"topic": "t", "group_id": "g"}


@pytest.mark.parametrize(
    ("alias", "given", "field", "expected"),
    [
        ("group.id", "other", "group_id", "other"),
        ("client.id", "me", "client_id", "me"),
        ("auto.offset.reset", "latest", "auto_offset_reset", AutoOffsetReset.LATEST),
        ("auto.offset.reset", "earliest", "auto_offset_reset", AutoOffsetReset.EARLIEST),
        ("auto.offset.reset", 42, "auto_offset_reset", 42),
        ("auto.offset.reset", "42", "auto_offset_reset", 42),
        ("enable.auto.commit", "false", "enable_auto_commit", False),
        ("enable.auto.commit", True, "enable_auto_commit", True),
        ("auto.commit.interval.ms", 250, "auto_commit_interval", timedelta(milliseconds=250)),
        ("auto.commit.interval.ms", timedelta(seconds=2), "auto_commit_interval", timedelta(seconds=2)),
        ("max.poll.records", "7", "max_poll_records", 7),
        ("fetch.max.wait.ms", "1500", "poll_timeout", timedelta(milliseconds=1500)),
        ("partition.id", 3, "partition_id", 3),
        ("request.timeout.ms", 1000, "request_timeout", timedelta(seconds=1)),
        ("retry.backoff.ms", 5, "retry_backoff", timedelta(milliseconds=5)),
        ("session.timeout.ms", 45_000, "session_timeout", timedelta(seconds=45)),
    ],
)
def test_kafkas_names_mean_the_same(alias: str, given: Any, field: str, expected: Any) -> None:
    properties = {"topic": "t", "group.id": "g", alias: given}
    assert getattr(ConsumerConfig.from_properties(properties), field) == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_snake_case_wins_over_the_dotted_name_in_either_order(reverse: bool) -> None:
    pairs = [("group_id", "snake"), ("group.id", "dotted"), ("topic", "t")]
    assert ConsumerConfig.from_properties(dict(reversed(pairs) if reverse else pairs)).group_id == "snake"


def test_the_defaults_are_those_of_the_documents() -> None:
    config = ConsumerConfig(topic="t", group_id="g")
    assert (config.heartbeat_interval, config.session_timeout) == (timedelta(seconds=10), timedelta(seconds=30))
    assert config.partition_id is None


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("topic", "", "name or alias"),
        ("topic", 5, "name or alias"),
        ("group_id", "g" * 256, "1 to 255"),
        ("auto_offset_reset", "newest", "'earliest', 'latest', 'none' or an offset"),
        ("auto_offset_reset", -1, "'earliest', 'latest', 'none' or an offset"),
        ("auto_offset_reset", True, "'earliest', 'latest', 'none' or an offset"),
        ("enable_auto_commit", "perhaps", "true or false"),
        ("auto_commit_interval", -1, "a timedelta or milliseconds"),
        ("auto_commit_interval", 1.5, "a timedelta or milliseconds"),
        ("max_poll_records", 0, "1 to 1000000"),
        ("max_poll_records", "many", "1 to 1000000"),
        ("poll_timeout", timedelta(days=2), "a timedelta or milliseconds"),
        ("partition_id", -1, "a partition"),
        ("request_timeout", "soon", "a timedelta or milliseconds"),
        ("retry_backoff", 0, "a timedelta or milliseconds"),
    ],
)
def test_a_wrong_value_is_rejected_with_field_value_and_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    for make in (lambda given: ConsumerConfig(**given), ConsumerConfig.from_properties):
        with pytest.raises(ConfigurationError) as refused:
            make({**LEAST, field: value})
        assert f"{field} is {value!r}" in str(refused.value)
        assert allowed in str(refused.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match="topic and group_id must be set"):
        ConsumerConfig.from_properties({})


def test_what_is_no_setting_is_rejected_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no setting 'group\.name'.*group_id"):
        ConsumerConfig.from_properties({**LEAST, "group.name": "x"})


def test_a_heartbeat_must_come_before_the_session_ends() -> None:
    with pytest.raises(ConfigurationError, match="heartbeat_interval is 0:00:30"):
        ConsumerConfig(topic="t", group_id="g", heartbeat_interval=timedelta(seconds=30))


def test_milliseconds_given_directly_become_timedeltas() -> None:
    given: Any = 250
    assert ConsumerConfig(topic="t", group_id="g", poll_timeout=given).poll_timeout == timedelta(milliseconds=250)


def test_the_publishers_settings_are_read_in_the_same_way() -> None:
    config = PublisherConfig.from_properties({"linger.ms": 5, "batch.size": "100", "buffer.memory": 7})
    assert (config.linger, config.batch_bytes, config.buffer_bytes) == (timedelta(milliseconds=5), 100, 7)


def test_the_settings_of_a_queue_are_read_in_the_same_way() -> None:
    given = {"pattern": "a.*", "group.id": "g", "share.record.lock.duration.ms": "500", "share.auto.offset.reset": "latest"}
    config = QueueConfig.from_properties(given)
    assert (config.visibility_timeout, config.auto_offset_reset) == (timedelta(milliseconds=500), AutoOffsetReset.LATEST)
    with pytest.raises(ConfigurationError, match="auto_offset_reset is 7; allowed is 'earliest' or 'latest'"):
        QueueConfig.from_properties({"pattern": "a", "group_id": "g", "auto_offset_reset": 7})


@pytest.mark.parametrize(
    ("shape", "settings"),
    [(ConsumerConfig, CONSUMER_SETTINGS), (PublisherConfig, PUBLISHER_SETTINGS), (QueueConfig, QUEUE_SETTINGS)],
)
def test_every_field_can_be_set_and_has_an_alias_of_its_own(shape: Any, settings: Any) -> None:
    assert set(shape.__struct_fields__) == set(settings)
    assert len({setting.alias for setting in settings.values()}) == len(settings)
