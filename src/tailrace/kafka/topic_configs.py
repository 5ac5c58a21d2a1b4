"""Topic configs under their Kafka names, converted to and from topic settings.

Most configs have an effect. Those of `accepted_configs.py` are checked, and what is in force stays in force. An unknown name is
rejected, because a setting that is accepted and ignored does harm.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tailrace.kafka.accepted_configs import ACCEPTED, ConfigType, InForce
from tailrace.model.commit import Durability
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.topic import Topic, TopicOptions, TopicSettings

UNBOUNDED = "-1"
_NO_LAG = (1 << 63) - 1
"""Kafka's default of `max.compaction.lag.ms`, which means that there is no such limit."""
NONE = "none"


class ConfigSource(IntEnum):
    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class TopicChange(NamedTuple):
    """The changes that a set of configs asks for."""

    options: TopicOptions
    alias: str | UnsetType | None
    without_effect: tuple[str, ...] = ()
    """The accepted configs that ask for something else than what is in force."""


class ConfigEntry(NamedTuple):
    """One config as clients see it."""

    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    documentation: str
    read_only: bool = False
    server_name: str | None = None
    """The name of the server's config that sets the default, if it has another name."""
    default: str | None = None
    """The value without the topic's own, if that differs."""


class _TopicConfig(NamedTuple):
    name: str
    field: str
    type: ConfigType
    parse: Callable[[str], Any]
    show: Callable[[Any, Limits], str]
    documentation: str


def _parse_int(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a number") from None


def _parse_bound(text: str) -> int | None:
    number = _parse_int(text)
    return None if number == -1 else number


def _parse_span(text: str) -> int | None:
    """Return milliseconds as seconds, rounded up: records may be kept a little longer than asked, never shorter."""
    milliseconds = _parse_bound(text)
    return None if milliseconds is None else -(-milliseconds // 1000)


def _parse_window(text: str) -> int:
    return -(-_parse_int(text) // 1000)


def _parse_policy(text: str) -> str:
    policies = {part.strip() for part in text.split(",")}
    if not policies or not policies <= {"compact", "delete"}:
        raise ConfigurationError(f"{text!r} is not one of delete, compact and compact,delete")
    return ",".join(sorted(policies))


def _parse_lag(text: str) -> int | None:
    return None if _parse_int(text) == _NO_LAG else _parse_window(text)


def _parse_percent(text: str) -> int:
    try:
        return round(float(text.strip()) * 100)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{text!r} is not a number from 0 to 1") from None


def _choice(**choices: Any) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text not in choices:
            raise ConfigurationError(f"{text!r} is not one of {', '.join(choices)}")
        return choices[text]

    return parse


def _show_span(seconds: int | None, limits: Limits) -> str:
    return UNBOUNDED if seconds is None else str(seconds * 1000)


def _show_bound(value: int | None, limits: Limits) -> str:
    return UNBOUNDED if value is None else str(value)


_COMPRESSION_NAMES = {None: "producer", "none": "uncompressed"}

_SETTINGS = (
    _TopicConfig(
        "retention.ms",
        "retention_seconds",
        ConfigType.LONG,
        _parse_span,
        _show_span,
        "How long records are kept, in whole seconds; -1 keeps them forever.",
    ),
    _TopicConfig(
        "retention.bytes",
        "retention_max_bytes",
        ConfigType.LONG,
        _parse_bound,
        _show_bound,
        "Bytes kept of each partition; -1 keeps them all.",
    ),
    _TopicConfig(
        "cleanup.policy",
        "cleanup_policy",
        ConfigType.LIST,
        _parse_policy,
        lambda value, limits: value,
        "What removes old records: delete (retention.ms and retention.bytes), compact, or compact,delete.",
    ),
    _TopicConfig(
        "delete.retention.ms",
        "delete_retention_seconds",
        ConfigType.LONG,
        _parse_window,
        lambda value, limits: str(value * 1000),
        "How long compaction keeps tombstones and markers of transactions, in whole seconds.",
    ),
    _TopicConfig(
        "min.compaction.lag.ms",
        "min_compaction_lag_seconds",
        ConfigType.LONG,
        _parse_window,
        lambda value, limits: str(value * 1000),
        "How long records are not compacted, in whole seconds.",
    ),
    _TopicConfig(
        "max.compaction.lag.ms",
        "max_compaction_lag_seconds",
        ConfigType.LONG,
        _parse_lag,
        lambda value, limits: str(_NO_LAG if value is None else value * 1000),
        "After which time records are compacted in any case, in whole seconds.",
    ),
    _TopicConfig(
        "min.cleanable.dirty.ratio",
        "min_dirty_percent",
        ConfigType.DOUBLE,
        _parse_percent,
        lambda value, limits: str(value / 100),
        "Which part of a partition must have come since its last compaction, in whole hundredths.",
    ),
    _TopicConfig(
        "max.message.bytes",
        "max_message_bytes",
        ConfigType.INT,
        _parse_int,
        lambda value, limits: str(limits.batch_bytes if value is None else value),
        "Bytes of the largest record batch.",
    ),
    _TopicConfig(
        "message.timestamp.type",
        "timestamps",
        ConfigType.STRING,
        _choice(CreateTime="create", LogAppendTime="append"),
        lambda value, limits: "LogAppendTime" if value == "append" else "CreateTime",
        "Whether records keep the timestamp of the sender or get the time of their append.",
    ),
    _TopicConfig(
        "compression.type",
        "compression",
        ConfigType.STRING,
        _choice(producer=None, uncompressed="none", gzip="gzip", snappy="snappy", lz4="lz4", zstd="zstd"),
        lambda value, limits: _COMPRESSION_NAMES.get(value, value),
        "The codec with which batches are stored; producer keeps the codec of the producer.",
    ),
    _TopicConfig(
        "tailrace.dedup",
        "dedup",
        ConfigType.STRING,
        _choice(none=None, id="id", content="content"),
        lambda value, limits: value or NONE,
        "What makes a record a duplicate: its message_id header (id), or its key and value (content).",
    ),
    _TopicConfig(
        "tailrace.dedup.window.ms",
        "dedup_window_seconds",
        ConfigType.LONG,
        _parse_window,
        lambda value, limits: str(value * 1000),
        "How long a record is remembered to find duplicates, in whole seconds.",
    ),
)
_BY_NAME = {setting.name: setting for setting in _SETTINGS}

ALIAS = "tailrace.alias"
_ALIAS_DOCUMENTATION = "A second name of the topic; empty for none."

_FIXED = {
    "min.insync.replicas": ("1", ConfigType.INT, "There is one broker, and it syncs before it acknowledges."),
}
"""Configs with one possible value: any other would change what the topic promises."""

CONFIG_NAMES = (*_BY_NAME, ALIAS, *_FIXED, *ACCEPTED)

_SERVER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
}
"""Where the server's config for the default of all topics has another name than that of a topic."""


def parse_configs(
    configs: Iterable[tuple[str, str | None]], limits: Limits = DEFAULT_LIMITS, durability: Durability = "fsync"
) -> TopicChange:
    """Return the changes that these configs ask for. A value of `None` asks for the default."""
    options: dict[str, Any] = {}
    alias: str | UnsetType | None = UNSET
    without_effect = []
    for name, value in configs:
        if name == ALIAS:
            alias = value or None
        elif name in _FIXED:
            possible = _FIXED[name][0]
            if value is not None and value != possible:
                raise ConfigurationError(f"{name} can only be {possible!r}, not {value!r}")
        elif name in ACCEPTED:
            if value is not None and ACCEPTED[name].check(value, InForce(limits, durability)):
                without_effect.append(name)
        elif name in _BY_NAME:
            setting = _BY_NAME[name]
            options[setting.field] = _default(setting.field) if value is None else _parsed(setting, value)
        else:
            raise ConfigurationError(f"unknown topic config {name!r}; known configs: {', '.join(sorted(CONFIG_NAMES))}")
    return TopicChange(TopicOptions(**options), alias, tuple(without_effect))


def show_configs(
    topic: Topic | None, settings: TopicSettings, limits: Limits, durability: Durability = "fsync"
) -> list[ConfigEntry]:
    """Return all configs of a topic, set or not, with the values that are in force."""
    shown = []
    for setting in _SETTINGS:
        value = getattr(settings, setting.field)
        default = _default(setting.field)
        shown.append(
            ConfigEntry(
                setting.name,
                setting.show(value, limits),
                setting.type,
                ConfigSource.DEFAULT if value == default else ConfigSource.TOPIC,
                setting.documentation,
                server_name=_SERVER_NAMES.get(setting.name),
                default=None if value == default else setting.show(default, limits),
            )
        )
    alias = topic.alias if topic is not None else None
    source = ConfigSource.TOPIC if alias else ConfigSource.DEFAULT
    shown.append(ConfigEntry(ALIAS, alias or "", ConfigType.STRING, source, _ALIAS_DOCUMENTATION))
    shown += [
        ConfigEntry(name, value, kind, ConfigSource.DEFAULT, documentation, read_only=True, server_name=_SERVER_NAMES.get(name))
        for name, (value, kind, documentation) in _FIXED.items()
    ]
    in_force = InForce(limits, durability)
    shown += [
        ConfigEntry(
            config.name,
            config.shown(in_force),
            config.type,
            ConfigSource.DEFAULT,
            f"{config.documentation} Accepted without effect.",
            read_only=True,
            server_name=config.server_name,
        )
        for config in ACCEPTED.values()
    ]
    return sorted(shown, key=lambda entry: entry.name)


def _parsed(setting: _TopicConfig, value: str) -> Any:
    try:
        return setting.parse(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{setting.name}: {error}") from None


def _default(field: str) -> Any:
    return getattr(_DEFAULTS, field)


_DEFAULTS = TopicSettings()
_ALL_DEFAULT = TopicOptions(**msgspec.structs.asdict(_DEFAULTS))


def with_defaults(change: TopicChange) -> TopicChange:
    """Return the change with everything that it leaves out reset to the default."""
    asked = {name: value for name, value in msgspec.structs.asdict(change.options).items() if value is not UNSET}
    alias = None if change.alias is UNSET else change.alias
    return change._replace(options=msgspec.structs.replace(_ALL_DEFAULT, **asked), alias=alias)
