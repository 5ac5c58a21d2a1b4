"""Topics and their settings. Settings that are left out of `TopicOptions` stay as they are."""

from base64 import urlsafe_b64encode
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
CompressionMode = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CleanupPolicy = Literal["delete", "compact", "compact,delete"]

MAX_SECONDS = 100 * 366 * 24 * 3600


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    retention_seconds: int | None = None
    """Records older than this are deleted. `None` keeps them for ever."""
    retention_max_bytes: int | None = None
    """Bytes that are kept of each partition, at least: older batches are deleted. `None` keeps them all."""
    dedup: DedupMode | None = None
    """What makes a record a duplicate: its `message_id` header, or its key and value."""
    dedup_window_seconds: int = 1800
    """How long a record is remembered to find duplicates of it."""
    max_message_bytes: int | None = None
    """Bytes of one batch. `None` means the limit `batch_bytes`. No topic takes more than `largest_batch_bytes`."""
    timestamps: TimestampMode = "create"
    """Whether records keep the sender's timestamp or get the time at which they are appended."""
    compression: CompressionMode | None = None
    """The codec with which batches are stored. `None` keeps that of the producer."""
    cleanup_policy: CleanupPolicy = "delete"
    """What removes old records: the two limits of retention, compaction, or both. Compaction keeps the last one of each key."""
    delete_retention_seconds: int = 24 * 3600
    """How long compaction keeps tombstones, and markers of transactions, after the records before them are removed."""
    min_compaction_lag_seconds: int = 0
    """Records that are younger than this are not compacted."""
    max_compaction_lag_seconds: int | None = None
    """Records that are older than this are compacted soon, whatever `min_dirty_percent` is. `None` means no such limit."""
    min_dirty_percent: int = 50
    """A partition is compacted when at least this part of its bytes has come since the last time."""

    @property
    def is_compacted(self) -> bool:
        return self.cleanup_policy != "delete"

    @property
    def has_retention(self) -> bool:
        """Whether old records are deleted."""
        is_limited = self.retention_seconds is not None or self.retention_max_bytes is not None
        return is_limited and self.cleanup_policy != "compact"


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that a request gives."""

    retention_seconds: int | UnsetType | None = UNSET
    retention_max_bytes: int | UnsetType | None = UNSET
    dedup: DedupMode | UnsetType | None = UNSET
    dedup_window_seconds: int | UnsetType = UNSET
    max_message_bytes: int | UnsetType | None = UNSET
    timestamps: TimestampMode | UnsetType = UNSET
    compression: CompressionMode | UnsetType | None = UNSET
    cleanup_policy: CleanupPolicy | UnsetType = UNSET
    delete_retention_seconds: int | UnsetType = UNSET
    min_compaction_lag_seconds: int | UnsetType = UNSET
    max_compaction_lag_seconds: int | UnsetType | None = UNSET
    min_dirty_percent: int | UnsetType = UNSET


TOPIC_KEYS = b"topic/"
"""The prefix of the state keys under which topics are stored."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    id: TopicId
    """Never reused, not even for a topic of the same name."""
    uuid: UUID
    name: str
    alias: str | None
    partitions: int
    settings: TopicSettings
    created_ms: int
    is_hidden: bool = False
    """Whether nobody finds it yet, because the table whose changes it holds is still being filled."""

    @property
    def kafka_id(self) -> str:
        """Return the UUID as Kafka's tools write it."""
        return urlsafe_b64encode(self.uuid.bytes).rstrip(b"=").decode()


class TopicNames:
    """The names of topics by id, for error messages and logs. Any thread may use it."""

    def __init__(self) -> None:
        self._names: dict[TopicId, str] = {}

    def learn(self, topic: Topic) -> None:
        self._names[topic.id] = topic.name

    def learn_from(self, puts: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Learn the names of topics from changes of state. Values that can't be decoded are skipped; known names stay known."""
        for key, value in puts:
            if value is not None and key.startswith(TOPIC_KEYS):
                with suppress(msgspec.MsgspecError):
                    self.learn(msgspec.msgpack.decode(value, type=Topic))

    def forget(self, topic: Topic) -> None:
        self._names.pop(topic.id, None)

    def name(self, topic_id: TopicId) -> str | None:
        return self._names.get(topic_id)

    def of(self, partition: PartitionId) -> str:
        """Return a partition as messages name it: `partition 0 of 'orders.paid'`."""
        name = self.name(partition.topic_id)
        return f"partition {partition.number} of {'a deleted topic' if name is None else repr(name)}"


NO_OPTIONS = TopicOptions()


def with_options(settings: TopicSettings, options: TopicOptions) -> TopicSettings:
    return msgspec.structs.replace(settings, **_given(options))


def differences(settings: TopicSettings, options: TopicOptions) -> list[str]:
    """Describe the settings that differ from what a request gives."""
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
    _check_between("delete_retention_seconds", settings.delete_retention_seconds, 0, MAX_SECONDS)
    _check_between("min_compaction_lag_seconds", settings.min_compaction_lag_seconds, 0, MAX_SECONDS)
    _check_between("max_compaction_lag_seconds", settings.max_compaction_lag_seconds, 1, MAX_SECONDS)
    _check_between("min_dirty_percent", settings.min_dirty_percent, 0, 100)
    most, least = settings.max_compaction_lag_seconds, settings.min_compaction_lag_seconds
    if most is not None and most < least:
        raise ConfigurationError(f"max_compaction_lag_seconds is {most}, less than min_compaction_lag_seconds ({least})")
    if settings.is_compacted and settings.dedup == "content":
        raise ConfigurationError(
            "a compacted topic can't have dedup = 'content': a value that a key gets back would not be stored, and its last"
            " record would be a wrong one; use dedup = 'id'"
        )


def _check_between(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ConfigurationError(f"{name} is {value}; it must be from {least} to {most}")


def _given(options: TopicOptions) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(options).items() if value is not UNSET}
