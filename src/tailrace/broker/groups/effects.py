"""What a group wants done after it was told something. The group itself waits for nobody."""

from collections.abc import Hashable
from typing import NamedTuple

from tailrace.model.errors import TailraceError
from tailrace.model.group import GroupRecord, Joined, Synced

Ticket = Hashable
"""Stands for a request that waits for its answer; each gets exactly one."""


class Reply(NamedTuple):
    ticket: Ticket
    answer: Joined | Synced | TailraceError


class Save(NamedTuple):
    """Make this durable, then tell the group by `saved` what became of it."""

    record: GroupRecord
    reply: Reply | None = None
    """Goes out once the record is durable: the new instance of a static member waits for this one."""


Effect = Reply | Save
