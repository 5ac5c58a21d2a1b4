"""Offsets of groups, in plain numbers."""

from tailrace.model.ids import Offset
from tailrace.model.offset import NO_LEADER_EPOCH, OffsetCommit


def up_to(topic: str, partition: int, offset: int, leader_epoch: int = NO_LEADER_EPOCH, metadata: str = "") -> OffsetCommit:
    """Everything below this offset is dealt with."""
    return OffsetCommit(topic, partition, Offset(offset), leader_epoch, metadata)
