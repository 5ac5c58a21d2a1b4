"""A route: which changes of a table go to a topic, and how they look there."""

from typing import Literal

import msgspec

from tailrace.model.ids import Cursor, RouteId, TableId, TopicId

Operation = Literal["insert", "update", "delete"]
Payload = Literal["key", "full", "diff"]

ROUTES_TOPIC = "_routes"
"""Every route that was added or dropped, in order: a route is in force from the cursor of its record on."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    id: RouteId
    topic: TopicId
    table: TableId
    operations: tuple[Operation, ...]
    where: str | None = None
    """A condition in our SQL, checked when the route was made."""
    partition_by: tuple[str, ...] = ()
    """Expressions in our SQL; their values choose the partition."""
    payload: Payload = "key"
    snapshot: bool = False
    """Whether the rows that were there before come first."""
    since: Cursor = Cursor(-1)
    """In force from this cursor on; -1 until it is committed."""
    until: Cursor | None = None
    """In force up to this cursor; `None` while it is."""
