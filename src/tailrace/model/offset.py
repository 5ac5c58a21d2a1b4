"""How far a group has come in a partition."""

from typing import NamedTuple
from uuid import UUID

from tailrace.model.ids import Offset

NO_LEADER_EPOCH = -1


class OffsetCommit(NamedTuple):
    """A group has dealt with everything below `offset`."""

    topic: str
    """Name or alias."""
    partition: int
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_uuid: UUID | None = None
    """Commit only if the topic is still this one. `None`: whichever has the name."""


class CommittedOffset(NamedTuple):
    topic: str
    partition: int
    offset: Offset
    leader_epoch: int
    metadata: str
    committed_ms: int


class Lag(NamedTuple):
    """Records of a partition that a group has not dealt with yet."""

    topic: str
    partition: int
    offset: Offset
    end: Offset
    lag: int
