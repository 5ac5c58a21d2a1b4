"""How one member of the consumer protocol comes to its target assignment, step by step.

A member first gives up what is not in its target, and gets new partitions only when nobody else has them:

    stable ──target has changed──▶ unrevoked ──gave all up──▶ unreleased ──others gave theirs up──▶ stable
       ▲  └─────────────────── nothing to give up ────────────────▲  │
       └────────────────────────── all are free ────────────────────┘

A partition has an owner from the moment it is in `assigned` of a member until that member has left it out of the partitions
that it reports. Steps are values, so that one can be looked at before it is taken.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from tailrace.broker.groups.assignment import NOTHING_ASSIGNED, Assignment, common, overlap, together, without
from tailrace.model.consumer_group import MemberState

_NO_PARTITIONS = frozenset[int]()
IsFree = Callable[[UUID, int], bool]
"""Whether no other member owns this partition."""


class MemberProgress(NamedTuple):
    """How far a member has come."""

    epoch: int
    previous_epoch: int
    state: MemberState = "stable"
    assigned: Assignment = NOTHING_ASSIGNED
    revoking: Assignment = NOTHING_ASSIGNED
    """What it was told to give up and may still read."""

    def owned(self, topic: UUID) -> frozenset[int]:
        """Return the partitions that nobody else may have."""
        return self.assigned.get(topic, _NO_PARTITIONS) | self.revoking.get(topic, _NO_PARTITIONS)

    def is_at(self, target_epoch: int) -> bool:
        """Return whether the member has its whole target of this epoch."""
        return self.state == "stable" and self.epoch == target_epoch


def advance(
    progress: MemberProgress, target_epoch: int, target: Assignment, reported: Assignment | None, is_free: IsFree
) -> MemberProgress:
    """Return the next step. `reported` is what the member says it has; `None` says nothing."""
    if progress.is_at(target_epoch):
        return progress
    if progress.state == "unrevoked" and _may_own(progress.revoking, reported):
        return progress
    assigned = common(progress.assigned, target)
    revoking = without(progress.assigned, assigned)
    if revoking and _may_own(revoking, reported):
        return MemberProgress(progress.epoch, progress.epoch, "unrevoked", assigned, revoking)
    wanted = without(target, assigned)
    free = {topic: taken for topic, numbers in wanted.items() if (taken := _free(topic, numbers, is_free))}
    state: MemberState = "unreleased" if without(wanted, free) else "stable"
    return MemberProgress(target_epoch, progress.epoch, state, together(assigned, free))


def _may_own(revoking: Assignment, reported: Assignment | None) -> bool:
    return bool(revoking) if reported is None else overlap(revoking, reported)


def _free(topic: UUID, numbers: frozenset[int], is_free: IsFree) -> frozenset[int]:
    return frozenset(number for number in numbers if is_free(topic, number))
