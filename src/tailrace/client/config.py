"""The settings of consumers, publishers and queues, under their own names and Kafka's.

A wrong value raises `ConfigurationError`, which says what is allowed.
"""

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
from tailrace.model.suggestions import did_you_mean


class AutoOffsetReset(StrEnum):
    """Where a group starts in a partition without a committed offset. An offset is the alternative."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """A missing committed offset is an error."""


class CorruptBatches(StrEnum):
    """What to do about stored batches that can't be decoded."""

    REPORT = "report"
    """Raise an error after everything before them was returned."""
    SKIP = "skip"
    """Skip them, with a warning in the log."""


_SECRETS = frozenset(("password", "token"))
_HIDDEN = "..."


class ConnectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials, TLS trust, timeouts and retries of the connection to the server.

    What has a variable in the environment comes from there if it is `None`. Secrets are left out of the `repr`.
    """

    user: str | None = None
    """The name of a user (`TAILRACE_USER`)."""
    password: str | None = None
    """Its password (`TAILRACE_PASSWORD`, or a file that `TAILRACE_PASSWORD_FILE` names)."""
    token: str | None = None
    """A token, instead of a user and a password (`TAILRACE_TOKEN`, or a file that `TAILRACE_TOKEN_FILE` names)."""
    ca_file: str | None = None
    """For an `https://` server: the PEM file of the trusted authorities (`TAILRACE_CA_FILE`). `None` means those that the
    environment names (`SSL_CERT_FILE`, `SSL_CERT_DIR`), or else the public ones."""
    certificate_file: str | None = None
    """The PEM file of a certificate that authenticates this client (`TAILRACE_CERTIFICATE_FILE`)."""
    key_file: str | None = None
    """The PEM file of its private key (`TAILRACE_KEY_FILE`), if that is not in the same file."""
    request_timeout: timedelta = timedelta(seconds=30)
    """Limits one request, in addition to the time that the server was asked to wait."""
    api_timeout: timedelta = timedelta(seconds=60)
    """How long one call retries before it gives up."""
    retry_backoff: timedelta = timedelta(milliseconds=100)
    """The first pause between attempts; each is twice as long as the one before."""
    retry_backoff_max: timedelta = timedelta(seconds=2)
    """The longest pause."""

    def __post_init__(self) -> None:
        _check(self, CONNECTION_SETTINGS)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, _HIDDEN if name in _SECRETS and value is not None else value) for name, value in values]


class ConsumerConfig(ConnectionConfig, frozen=True, kw_only=True):
    """The settings of a consumer.

    >>> config = ConsumerConfig.from_properties({"topic": "orders", "group.id": "billing", "max.poll.records": "500"})
    >>> config.max_poll_records
    500
    >>> ConsumerConfig(topic="orders", group_id="billing", max_poll_records=0)
    Traceback (most recent call last):
    tailrace.model.errors.ConfigurationError: max_poll_records is 0; allowed is a whole number, 1 to 1000000
    """

    topic: str
    """The name or alias of the topic."""
    group_id: str
    """Consumers of one group share the partitions. Kafka clients may be in the same group."""
    client_id: str = "tailrace-python"
    """Names this consumer among the members of its group."""
    auto_offset_reset: AutoOffsetReset | int = AutoOffsetReset.EARLIEST
    """Where the group starts without a committed offset, and in a topic that was deleted and created again. With `none` a poll
    raises an error in both cases."""
    enable_auto_commit: bool = True
    """Commit in the background what was marked as processed."""
    auto_commit_interval: timedelta = timedelta(seconds=5)
    max_poll_records: int = 500
    """Limits the records of one poll."""
    poll_timeout: timedelta = timedelta(seconds=1)
    """How long a poll waits for the first record."""
    partition_id: int | None = None
    """Read only this partition, without being a member of the group. `None` shares the partitions with the other members."""
    fetch_max_bytes: int = MIB
    """Limits the bytes of one fetch."""
    corrupt_batches: CorruptBatches = CorruptBatches.REPORT
    """Whether stored batches that can't be decoded raise an error, after everything before them, or are skipped."""
    heartbeat_interval: timedelta = timedelta(seconds=10)
    session_timeout: timedelta = timedelta(seconds=30)
    """After this time without a heartbeat the group assigns the member's partitions to others."""
    max_poll_interval: timedelta = timedelta(minutes=5)
    """A consumer that does not poll for this long counts as stuck, and its heartbeats end."""

    def __post_init__(self) -> None:
        _check(self, CONSUMER_SETTINGS)
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigurationError(
                f"heartbeat_interval is {self.heartbeat_interval}; allowed is less than session_timeout,"
                f" which is {self.session_timeout}"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Read settings under their own names or Kafka's (`group.id`), durations as timedeltas or milliseconds.

        If a setting is given under both names, its own takes precedence.
        """
        return cls(**_fields_of(cls, properties, CONSUMER_SETTINGS))


class PublisherConfig(ConnectionConfig, frozen=True, kw_only=True):
    """The settings of a publisher: how it batches messages, and how much it buffers.

    >>> PublisherConfig.from_properties({"linger.ms": 5}).linger
    datetime.timedelta(microseconds=5000)
    """

    batch_records: int = 2_000
    """Limits the messages of one request."""
    batch_bytes: int = MIB
    """The size of a request above which no further message is added."""
    linger: timedelta = timedelta(0)
    """How long the first message of a request waits for others. Messages that arrive during a request are batched anyway."""
    buffer_records: int = 20_000
    """Limits the messages that wait to be sent. `send` waits while it is reached."""
    buffer_bytes: int = 32 * MIB
    """Limits the bytes of these messages."""

    def __post_init__(self) -> None:
        _check(self, PUBLISHER_SETTINGS)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Read settings as `ConsumerConfig.from_properties` does."""
        return cls(**_fields_of(cls, properties, PUBLISHER_SETTINGS))


class QueueConfig(ConnectionConfig, frozen=True, kw_only=True):
    """The settings of a consumer of a queue.

    >>> config = QueueConfig.from_properties({"pattern": "mail.*", "group.id": "mailers", "visibility_timeout": 60_000})
    >>> config.visibility_timeout
    datetime.timedelta(seconds=60)
    """

    pattern: str
    """The topics to receive from."""
    group_id: str
    """Each event goes to one consumer of the group."""
    client_id: str = "tailrace-python"
    """Names this consumer."""
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.EARLIEST
    """Where a new group starts in existing topics."""
    visibility_timeout: timedelta = timedelta(milliseconds=DEFAULT_VISIBILITY_MS)
    """How long this consumer has an event."""
    max_deliveries: int | None = None
    """After this many deliveries an event goes to the dead letters. Changes the limit for the whole group, unless `None`."""
    corrupt_batches: CorruptBatches = CorruptBatches.REPORT
    """Whether stored batches that can't be decoded raise an error, after everything before them, or are skipped."""
    order_by_key: bool = False
    """Deliver an event only when all earlier ones with its key are done. All consumers of the group must set it."""
    auto_extend: bool = False
    """Extend the time of an event in the background until it is acknowledged, up to `max_poll_interval`."""
    max_poll_records: int = 10
    """Limits the events of one poll, and those that iteration prefetches."""
    poll_timeout: timedelta = timedelta(seconds=1)
    """How long a poll waits for the first event."""
    max_poll_interval: timedelta = timedelta(minutes=5)
    """With `auto_extend`, a consumer that has an event for longer counts as stuck, and others get the event."""

    def __post_init__(self) -> None:
        _check(self, QUEUE_SETTINGS)
        parse_pattern(self.pattern, DEFAULT_LIMITS)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Read settings as `ConsumerConfig.from_properties` does."""
        return cls(**_fields_of(cls, properties, QUEUE_SETTINGS))


def to_seconds(given: float | timedelta | None, otherwise: timedelta, name: str = "timeout") -> float:
    """Return the seconds of a timeout that may be given as seconds or as a timedelta."""
    if given is None:
        return otherwise.total_seconds()
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not seconds >= 0:
        raise ConfigurationError(f"{name} is {given!r}; allowed is a timedelta or seconds, from 0 on")
    return seconds


class Setting(NamedTuple):
    """One field: Kafka's name for it, how its value is read, and what is allowed, in words."""

    alias: str
    read: Callable[[Any], Any]
    """Raises `ValueError` or `TypeError` for a value that is not allowed."""
    allowed: str
    is_secret: bool = False
    """Whether no error may show its value."""


def _check(config: msgspec.Struct, settings: Mapping[str, Setting]) -> None:
    for name, setting in settings.items():
        given = getattr(config, name)
        known = read_setting(name, given, setting)
        if known != given or type(known) is not type(given):
            # A value of another type, such as a number of milliseconds, is converted.
            msgspec.structs.force_setattr(config, name, known)


def _fields_of(shape: type[msgspec.Struct], properties: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    found = read_properties(properties, settings)
    missing = [field.name for field in msgspec.structs.fields(shape) if field.required and field.name not in found]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set")
    return found


def read_properties(given: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the fields by their own names. If a setting is given under both names, its own takes precedence over Kafka's."""
    names = {setting.alias: name for name, setting in settings.items()}
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = key if key in settings else names.get(key)
        if name is None:
            hint = did_you_mean(key, [*settings, *names]) or ";"
            raise ConfigurationError(f"there is no setting {key!r}{hint} the settings are {', '.join(sorted(settings))}")
        if key == name or name not in given:
            found[name] = read_setting(key, value, settings[name])
    return found


def read_setting(name: str, value: Any, setting: Setting) -> Any:
    try:
        return setting.read(value)
    except (ValueError, TypeError, OverflowError):
        shown = _HIDDEN if setting.is_secret else repr(value)
        raise ConfigurationError(f"{name} is {shown}; allowed is {setting.allowed}") from None


_TRUE = frozenset(("true", "1", "yes", "on"))
_FALSE = frozenset(("false", "0", "no", "off"))


def text(longest: int = 255) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise ValueError
        return value

    return read


def file_name(value: Any) -> str:
    """Read a path, as text or as a path object."""
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
    """Read a timedelta, or a whole number of milliseconds."""
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
    """Read one of the two ends of the log."""
    if value == AutoOffsetReset.NONE:
        raise ValueError
    return AutoOffsetReset(value)


def one_of(values: type[StrEnum]) -> Callable[[Any], StrEnum]:
    return lambda value: values(value)


_MAX_SECRET = 16_384
_DAY_MS = 24 * 3600 * 1000
_HOUR_MS = 3600 * 1000


def _span(least_ms: int, most_ms: int) -> str:
    return f"a timedelta or milliseconds, {least_ms} to {most_ms} ms"


def _duration(alias: str, least_ms: int, most_ms: int) -> Setting:
    return Setting(alias, duration(least_ms, most_ms), _span(least_ms, most_ms))


def _number(alias: str, least: int, most: int) -> Setting:
    return Setting(alias, whole_number(least, most), f"a whole number, {least} to {most}")


CONNECTION_SETTINGS: Mapping[str, Setting] = {
    "user": Setting("sasl.username", optional(text()), "a name of 1 to 255 characters, or None"),
    "password": Setting("sasl.password", optional(text(_MAX_SECRET)), f"1 to {_MAX_SECRET} characters, or None", True),
    "token": Setting("sasl.token", optional(text(_MAX_SECRET)), f"1 to {_MAX_SECRET} characters, or None", True),
    "certificate_file": Setting("ssl.certificate.location", optional(file_name), "the name of a file, or None"),
    "key_file": Setting("ssl.key.location", optional(file_name), "the name of a file, or None"),
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
