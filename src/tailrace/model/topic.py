"""A topic and its settings, as values. Settings that are left out of `TopicOptions` stay as they are."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from tailrace.model.errors import ConfigurationError
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import Limits

DedupMode = Literal["id", "content"]
TimestampMode = Literal["create", "append"]

MAX_SECONDS = 100 * 366 * 24 * 3600


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    retention_seconds: int | None = None
    """Records older than this go. `None` keeps them for ever."""
    retention_max_bytes: int | None = None
    """Bytes kept of each partition, at least: the oldest batches go while so much stays. `None` keeps them all."""
    dedup: DedupMode | None = None
    """What makes a record a duplicate: its `message_id` header, or its key and value."""
    dedup_window_seconds: int = 1800
    """How long a record is remembered for that."""
    max_message_bytes: int | None = None
    """Bytes of one batch; `None` means the limit `batch_bytes`; no topic takes more than `largest_batch_bytes`."""
    timestamps: TimestampMode = "create"
    """Whether records keep the sender's time or get the time of their append."""


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that somebody asked for."""

    retention_seconds: int | UnsetType | None = UNSET
    retention_max_bytes: int | UnsetType | None = UNSET
    dedup: DedupMode | UnsetType | None = UNSET
    dedup_window_seconds: int | UnsetType = UNSET
    max_message_bytes: int | UnsetType | None = UNSET
    timestamps: TimestampMode | UnsetType = UNSET


TOPIC_KEYS = b"topic/"
"""How the state keys begin under which topics are kept."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    id: TopicId
    """Never used again, not even for a topic of the same name."""
    uuid: UUID
    name: str
    alias: str | None
    partitions: int
    settings: TopicSettings
    created_ms: int


class TopicNames:
    """What topics are called, for errors and logs of those who know them by their ids only. Any thread may ask."""

    def __init__(self) -> None:
        self._names: dict[TopicId, str] = {}

    def learn(self, topic: Topic) -> None:
        self._names[topic.id] = topic.name

    def learn_from(self, puts: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Look for topics among changes of state. What can't be read is passed over, and a name that was known stays known."""
        for key, value in puts:
            if value is not None and key.startswith(TOPIC_KEYS):
                with suppress(msgspec.MsgspecError):
                    self.learn(msgspec.msgpack.decode(value, type=Topic))

    def forget(self, topic: Topic) -> None:
        self._names.pop(topic.id, None)

    def name(self, topic_id: TopicId) -> str | None:
        return self._names.get(topic_id)

    def of(self, partition: PartitionId) -> str:
        """`partition 0 of 'orders.paid'`."""
        name = self.name(partition.topic_id)
        return f"partition {partition.number} of {'a topic that was deleted' if name is None else repr(name)}"


NO_OPTIONS = TopicOptions()


def with_options(settings: TopicSettings, options: TopicOptions) -> TopicSettings:
    return msgspec.structs.replace(settings, **_given(options))


def differences(settings: TopicSettings, options: TopicOptions) -> list[str]:
    """What was asked for and is otherwise, in words."""
    return [
        f"{name} is {getattr(settings, name)!r}, not {wanted!r}"
        for name, wanted in _given(options).items()
        if getattr(settings, name) != wanted
    ]


def check_settings(settings: TopicSettings, limits: Limits) -> None:
    _check_between("retention_seconds", settings.retention_seconds, 1, MAX_SECONDS)
    _check_between("retention_max_bytes", settings.retention_max_bytes, 1, (1 << 63) - 1)
    _check_between("dedup_window_seconds", settings.dedup_window_seconds, 1, limits.dedup_window_seconds)
    _check_between("max_message_bytes", settings.max_message_bytes, 1, limits.largest_batch_bytes)


def _check_between(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ConfigurationError(f"{name} is {value}; it must be from {least} to {most}")


def _given(options: TopicOptions) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(options).items() if value is not UNSET}
