"""Views: queries under a name, with the columns that they had when they were created."""

import msgspec

from tailrace.model.ids import TopicId, ViewId


class ViewColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a view. `type` is PostgreSQL's short name, with `[]` for arrays."""

    name: str
    type: str
    precision: int | None = None
    scale: int | None = None
    length: int | None = None


class ViewSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that the query of a view reads. It is found by its id, whatever it is called later."""

    name: str
    """What the query calls it."""
    topic: TopicId | None = None
    """A topic, or the topic of a table's changes, which stands for the table."""
    is_table: bool = False
    """Whether the table is read, not the topic of its changes."""
    view: ViewId | None = None
    columns: tuple[str, ...] = ()
    """The columns that it had when the view was created. Those that it got later are not part of the view."""
    used: tuple[str, ...] = ()
    """The columns that the query uses."""


class ViewDefinition(msgspec.Struct, frozen=True, kw_only=True):
    id: ViewId
    """Never reused. A view that is replaced keeps it."""
    name: str
    columns: tuple[ViewColumn, ...]
    text: str
    """The query as it was written."""
    sources: tuple[ViewSource, ...]
    created_ms: int
