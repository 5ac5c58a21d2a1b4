"""Settings from names and values: typed, under their own names or Kafka's, each wrong one refused with what is allowed."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec

from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.names import parse_pattern
from tailrace.model.queue import DEFAULT_VISIBILITY_MS

_TRUE = frozenset(("true", "1", "yes", "on"))
_FALSE = frozenset(("false", "0", "no", "off"))


class AutoOffsetReset(StrEnum):
    """Where a group begins in a partition in which it has committed nothing. An offset is another way."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere by itself: that there is no committed offset is an error."""


class CorruptBatches(StrEnum):
    """What becomes of stored batches that can't be decoded."""

    REPORT = "report"
    """An error, once everything that comes before them was handed out."""
    SKIP = "skip"
    """They are left out, with a warning in the log."""


class Setting(NamedTuple):
    """One field: the name that Kafka has for it, how its value is read, and what is allowed, in words."""

    alias: str
    read: Callable[[Any], Any]
    """Raises `ValueError` or `TypeError` for what is not allowed."""
    allowed: str


def read_properties(given: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The fields by their own names. Where a setting is given under both names, its own counts, not Kafka's."""
    names = {setting.alias: name for name, setting in settings.items()}
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = key if key in settings else names.get(key)
        if name is None:
            raise ConfigurationError(f"there is no setting {key!r}; the settings are {', '.join(sorted(settings))}")
        if key == name or name not in given:
            found[name] = read_setting(key, value, settings[name])
    return found


def read_setting(name: str, value: Any, setting: Setting) -> Any:
    try:
        return setting.read(value)
    except (ValueError, TypeError, OverflowError):
        raise ConfigurationError(f"{name} is {value!r}; allowed is {setting.allowed}") from None


def text(longest: int = 255) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise ValueError
        return value

    return read


def file_name(value: Any) -> str:
    """Text, or a path."""
    name = os.fspath(value)
    if not isinstance(name, str) or not name:
        raise ValueError
    return name


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise TypeError
        number = int(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return read


def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError


def duration(least_ms: int, most_ms: int) -> Callable[[Any], timedelta]:
    """A timedelta, or a whole number of milliseconds."""
    count = whole_number(least_ms, most_ms)

    def read(value: Any) -> timedelta:
        if not isinstance(value, timedelta):
            return timedelta(milliseconds=count(value))
        if not timedelta(milliseconds=least_ms) <= value <= timedelta(milliseconds=most_ms):
            raise ValueError
        return value

    return read


def offset_reset(value: Any) -> AutoOffsetReset | int:
    if isinstance(value, str) and value in tuple(AutoOffsetReset):
        return AutoOffsetReset(value)
    return whole_number(0, 2**63 - 1)(value)


def log_edge(value: Any) -> AutoOffsetReset:
    """One end or the other."""
    if value == AutoOffsetReset.NONE:
        raise ValueError
    return AutoOffsetReset(value)


def one_of(values: type[StrEnum]) -> Callable[[Any], StrEnum]:
    return lambda value: values(value)


def to_seconds(given: float | timedelta | None, otherwise: timedelta, name: str = "timeout") -> float:
    """What a caller gave as seconds or as a timedelta."""
    if given is None:
        return otherwise.total_seconds()
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not seconds >= 0:
        raise ConfigurationError(f"{name} is {given!r}; allowed is a timedelta or seconds, from 0 on")
    return seconds


_DAY_MS = 24 * 3600 * 1000
_HOUR_MS = 3600 * 1000


def _span(least_ms: int, most_ms: int) -> str:
    return f"a timedelta or milliseconds, {least_ms} to {most_ms} ms"


def _duration(alias: str, least_ms: int, most_ms: int) -> Setting:
    return Setting(alias, duration(least_ms, most_ms), _span(least_ms, most_ms))


def _number(alias: str, least: int, most: int) -> Setting:
    return Setting(alias, whole_number(least, most), f"a whole number, {least} to {most}")


CONNECTION_SETTINGS: Mapping[str, Setting] = {
    "ca_file": Setting("ssl.ca.location", optional(file_name), "the name of a file, or None"),
    "request_timeout": _duration("request.timeout.ms", 1, _HOUR_MS),
    "api_timeout": _duration("default.api.timeout.ms", 1, _DAY_MS),
    "retry_backoff": _duration("retry.backoff.ms", 1, _HOUR_MS),
    "retry_backoff_max": _duration("retry.backoff.max.ms", 1, _HOUR_MS),
}

CORRUPT_BATCHES = Setting("corrupt.batches", one_of(CorruptBatches), "'report' or 'skip'")

CONSUMER_SETTINGS: Mapping[str, Setting] = {
    "topic": Setting("topic", text(DEFAULT_LIMITS.topic_name_length), "the name or alias of a topic"),
    "group_id": Setting("group.id", text(DEFAULT_LIMITS.group_name_length), "a name of 1 to 255 characters"),
    "client_id": Setting("client.id", text(), "a name of 1 to 255 characters"),
    "auto_offset_reset": Setting("auto.offset.reset", offset_reset, "'earliest', 'latest', 'none' or an offset from 0 on"),
    "enable_auto_commit": Setting("enable.auto.commit", boolean, "true or false"),
    "auto_commit_interval": _duration("auto.commit.interval.ms", 1, _DAY_MS),
    "max_poll_records": _number("max.poll.records", 1, 1_000_000),
    "poll_timeout": _duration("fetch.max.wait.ms", 0, _DAY_MS),
    "partition_id": Setting("partition.id", optional(whole_number(0, 2**31 - 1)), "the number of a partition, or None"),
    "corrupt_batches": CORRUPT_BATCHES,
    "fetch_max_bytes": _number("fetch.max.bytes", 1, DEFAULT_LIMITS.fetch_bytes),
    "heartbeat_interval": _duration("heartbeat.interval.ms", 10, _HOUR_MS),
    "session_timeout": _duration("session.timeout.ms", 1_000, _HOUR_MS),
    "max_poll_interval": _duration("max.poll.interval.ms", 1_000, _HOUR_MS),
    **CONNECTION_SETTINGS,
}

PUBLISHER_SETTINGS: Mapping[str, Setting] = {
    "batch_records": _number("batch.records", 1, DEFAULT_LIMITS.publish_records),
    "batch_bytes": _number("batch.size", 1, 8 * MIB),
    "linger": _duration("linger.ms", 0, 60_000),
    "buffer_records": _number("buffer.records", 1, 1_000_000),
    "buffer_bytes": _number("buffer.memory", 1, 1024 * MIB),
    **CONNECTION_SETTINGS,
}


QUEUE_SETTINGS: Mapping[str, Setting] = {
    "pattern": Setting("pattern", text(DEFAULT_LIMITS.topic_name_length), "a topic, or a pattern such as 'orders.*'"),
    "group_id": Setting("group.id", text(DEFAULT_LIMITS.group_name_length), "a name of 1 to 255 characters"),
    "client_id": Setting("client.id", text(), "a name of 1 to 255 characters"),
    "auto_offset_reset": Setting("share.auto.offset.reset", log_edge, "'earliest' or 'latest'"),
    "visibility_timeout": _duration("share.record.lock.duration.ms", 1, DEFAULT_LIMITS.queue_hold_ms),
    "max_deliveries": Setting(
        "share.delivery.count.limit",
        optional(whole_number(1, DEFAULT_LIMITS.queue_deliveries)),
        f"a whole number, 1 to {DEFAULT_LIMITS.queue_deliveries}, or None",
    ),
    "corrupt_batches": CORRUPT_BATCHES,
    "order_by_key": Setting("order.by.key", boolean, "true or false"),
    "auto_extend": Setting("auto.extend", boolean, "true or false"),
    "max_poll_records": _number("max.poll.records", 1, DEFAULT_LIMITS.queue_batch),
    "poll_timeout": _duration("fetch.max.wait.ms", 0, _DAY_MS),
    "max_poll_interval": _duration("max.poll.interval.ms", 1_000, _HOUR_MS),
    **CONNECTION_SETTINGS,
}


class ConnectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to trust, how long to wait for one answer, and how to try again."""

    ca_file: str | None = None
    """Of an `https://` server: certificates of the authorities that are trusted, as PEM. `None`: those that the environment
    names (`SSL_CERT_FILE`, `SSL_CERT_DIR`), or else the public ones."""
    request_timeout: timedelta = timedelta(seconds=30)
    """How long one request may take, beyond what the server was asked to wait."""
    api_timeout: timedelta = timedelta(seconds=60)
    """How long one call tries again before it gives up."""
    retry_backoff: timedelta = timedelta(milliseconds=100)
    """The first pause; each one is twice as long as the last."""
    retry_backoff_max: timedelta = timedelta(seconds=2)
    """The longest pause."""

    def __post_init__(self) -> None:
        _check(self, CONNECTION_SETTINGS)


class ConsumerConfig(ConnectionConfig, frozen=True, kw_only=True):
    """What a consumer reads, for whom, and how.

    >>> config = ConsumerConfig.from_properties({"topic": "orders", "group.id": "billing", "max.poll.records": "500"})
    >>> config.max_poll_records
    500
    >>> ConsumerConfig(topic="orders", group_id="billing", max_poll_records=0)
    Traceback (most recent call last):
    tailrace.model.errors.ConfigurationError: max_poll_records is 0; allowed is a whole number, 1 to 1000000
    """

    topic: str
    """Name or alias."""
    group_id: str
    """Consumers of one group share the partitions; the same groups as those of Kafka's clients."""
    client_id: str = "tailrace-python"
    """How this consumer is shown among the members of its group."""
    auto_offset_reset: AutoOffsetReset | int = AutoOffsetReset.EARLIEST
    """Where the group begins if it has committed nothing yet, also in a topic that was deleted and made again. `none` makes
    both an error, which a poll raises."""
    enable_auto_commit: bool = True
    """Commit by itself what was marked as processed."""
    auto_commit_interval: timedelta = timedelta(seconds=5)
    max_poll_records: int = 500
    """Records of one poll, at most."""
    poll_timeout: timedelta = timedelta(seconds=1)
    """How long a poll waits for the first record."""
    partition_id: int | None = None
    """Read this partition, without being a member of the group; `None` shares the partitions with the others."""
    fetch_max_bytes: int = MIB
    """Bytes asked for at once."""
    corrupt_batches: CorruptBatches = CorruptBatches.REPORT
    """What to do about stored batches that can't be decoded: raise an error after what comes before them, or skip them."""
    heartbeat_interval: timedelta = timedelta(seconds=10)
    session_timeout: timedelta = timedelta(seconds=30)
    """After so long without a heartbeat the group gives the member's partitions to others."""
    max_poll_interval: timedelta = timedelta(minutes=5)
    """A consumer that does not poll for so long counts as stuck, and its heartbeats end."""

    def __post_init__(self) -> None:
        _check(self, CONSUMER_SETTINGS)
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigurationError(
                f"heartbeat_interval is {self.heartbeat_interval}; allowed is less than session_timeout,"
                f" which is {self.session_timeout}"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Settings under their own names or Kafka's (`group.id`), durations as timedeltas or milliseconds.

        Where a setting is given under both names, its own counts.
        """
        return cls(**_fields_of(cls, properties, CONSUMER_SETTINGS))


class PublisherConfig(ConnectionConfig, frozen=True, kw_only=True):
    """How a publisher gathers messages, and how much it holds.

    >>> PublisherConfig.from_properties({"linger.ms": 5}).linger
    datetime.timedelta(microseconds=5000)
    """

    batch_records: int = 2_000
    """Messages of one request, at most."""
    batch_bytes: int = MIB
    """Bytes of one request, above which no further message is added."""
    linger: timedelta = timedelta(0)
    """How long the first message of a request waits for others. Those that come while a request is on its way gather anyway."""
    buffer_records: int = 20_000
    """Messages that wait to be sent; beyond it `send` waits."""
    buffer_bytes: int = 32 * MIB
    """Bytes of them."""

    def __post_init__(self) -> None:
        _check(self, PUBLISHER_SETTINGS)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """As `ConsumerConfig.from_properties`."""
        return cls(**_fields_of(cls, properties, PUBLISHER_SETTINGS))


class QueueConfig(ConnectionConfig, frozen=True, kw_only=True):
    """What a consumer of a queue takes, for whom, and how.

    >>> config = QueueConfig.from_properties({"pattern": "mail.*", "group.id": "mailers", "visibility_timeout": 60_000})
    >>> config.visibility_timeout
    datetime.timedelta(seconds=60)
    """

    pattern: str
    """Topics to take from."""
    group_id: str
    """Consumers of one group share the events, each to one of them."""
    client_id: str = "tailrace-python"
    """What this consumer calls itself."""
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.EARLIEST
    """Where a new group begins in topics that are there already."""
    visibility_timeout: timedelta = timedelta(milliseconds=DEFAULT_VISIBILITY_MS)
    """How long an event is with this consumer."""
    max_deliveries: int | None = None
    """For the whole group from now on: after so many deliveries an event goes to the dead letters. `None` changes nothing."""
    corrupt_batches: CorruptBatches = CorruptBatches.REPORT
    """What to do about stored batches that can't be decoded: raise an error after what comes before them, or skip them."""
    order_by_key: bool = False
    """Hold an event back until those of its key that came before it are done. All consumers of the group must ask for it."""
    auto_extend: bool = False
    """Ask for more time by itself, for as long as an event is not settled, up to `max_poll_interval`."""
    max_poll_records: int = 10
    """Events of one poll, and that iteration takes ahead, at most."""
    poll_timeout: timedelta = timedelta(seconds=1)
    """How long a poll waits for the first event."""
    max_poll_interval: timedelta = timedelta(minutes=5)
    """With `auto_extend`: a consumer that keeps an event for longer counts as stuck, and others get it."""

    def __post_init__(self) -> None:
        _check(self, QUEUE_SETTINGS)
        parse_pattern(self.pattern, DEFAULT_LIMITS)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """As `ConsumerConfig.from_properties`."""
        return cls(**_fields_of(cls, properties, QUEUE_SETTINGS))


def _check(config: msgspec.Struct, settings: Mapping[str, Setting]) -> None:
    for name, setting in settings.items():
        given = getattr(config, name)
        known = read_setting(name, given, setting)
        if known != given or type(known) is not type(given):
            # What has another type, such as a number of milliseconds, is stored as what it means.
            msgspec.structs.force_setattr(config, name, known)


def _fields_of(shape: type[msgspec.Struct], properties: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    found = read_properties(properties, settings)
    missing = [field.name for field in msgspec.structs.fields(shape) if field.required and field.name not in found]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set")
    return found
