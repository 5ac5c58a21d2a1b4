"""Offsets of groups, in plain numbers."""

from tailrace.model.group import NO_LEADER_EPOCH, OffsetCommit
from tailrace.model.ids import Offset


def up_to(topic: str, partition: int, offset: int, leader_epoch: int = NO_LEADER_EPOCH, metadata: str = "") -> OffsetCommit:
    """Everything below this offset is dealt with."""
    return OffsetCommit(topic, partition, Offset(offset), leader_epoch, metadata)
