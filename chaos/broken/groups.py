"""Faults of groups and queues: who may commit, what is kept of a commit, and what an ack is worth."""

from itertools import count

from tailrace.broker.groups import offsets
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.queues.share import _WriteShare
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset

_EVERY = 7
_BACK = 3


def fence_nobody() -> None:
    """Members of an old generation may go on committing."""
    GroupCoordinator.check_commit = lambda self, name, member, *, in_transaction=False: None  # type: ignore[method-assign]


def move_offsets_back() -> None:
    """Now and then a lower offset is kept than was committed."""
    encode = offsets._encode
    numbers = count(1)

    def careless(commit: OffsetCommit, now_ms: int) -> bytes:
        if next(numbers) % _EVERY == 0:
            commit = commit._replace(offset=Offset(max(0, commit.offset - _BACK)))
        return encode(commit, now_ms)

    offsets._encode = careless


def forget_acks() -> None:
    """Acks of queues are answered and not kept, so the records come again after a restart."""
    _WriteShare.decide = lambda self: None  # type: ignore[method-assign]
