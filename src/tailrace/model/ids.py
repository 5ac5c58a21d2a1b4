"""The types of ids and positions.

An `Offset` is a record's place in its partition, a `Cursor` its place in the whole log. Both have no gaps and start at 0. A
`Position` is a byte address in the log's files and has no meaning outside `log/`.
"""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
Cursor = NewType("Cursor", int)
Position = NewType("Position", int)
TopicId = NewType("TopicId", int)
TableId = NewType("TableId", int)
RouteId = NewType("RouteId", int)
ViewId = NewType("ViewId", int)
SourceId = NewType("SourceId", int)
ShadowId = NewType("ShadowId", int)
ProducerId = NewType("ProducerId", int)


class PartitionId(NamedTuple):
    """One partition of one topic. Topic ids are never reused, so an old partition is never mistaken for a new one."""

    topic_id: TopicId
    number: int
