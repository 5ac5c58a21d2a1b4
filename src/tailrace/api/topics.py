"""Schemas of `/api/topics`, `/api/topics/{name}` and `/api/topics/{name}/partitions`."""

import msgspec
from msgspec import UNSET, UnsetType

from tailrace.api.messages import AtLeastOne
from tailrace.model.topic import NO_OPTIONS, Topic, TopicOptions


class CreateTopicBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: AtLeastOne = 1
    alias: str | None = None
    settings: TopicOptions = NO_OPTIONS


class ChangeTopicBody(msgspec.Struct, forbid_unknown_fields=True):
    """Fields that are left out stay as they are; an alias of `null` removes the alias."""

    partitions: AtLeastOne | None = None
    alias: str | UnsetType | None = UNSET
    settings: TopicOptions = NO_OPTIONS


class TopicPage(msgspec.Struct):
    topics: list[Topic]
    next: str | None
    """The `after` of the next page, or `null` on the last one."""


class PartitionStatus(msgspec.Struct):
    partition_id: int
    start_offset: int
    end_offset: int
    last_stable_offset: int
    """The end of what readers of committed records see."""
    size_bytes: int


class PartitionPage(msgspec.Struct):
    partitions: list[PartitionStatus]
    next: str | None
