"""The addresses of things: which partition, which offset, which cursor.

An `Offset` is a record's place in its partition, a `Cursor` its place in the whole log; both are dense and start at 0.
A `Position` is a byte address in the log's files and means nothing outside `log/`.
"""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
Cursor = NewType("Cursor", int)
Position = NewType("Position", int)
TopicId = NewType("TopicId", int)
TableId = NewType("TableId", int)
RouteId = NewType("RouteId", int)
ProducerId = NewType("ProducerId", int)


class PartitionId(NamedTuple):
    """One ordered stream of one topic. Topic ids are never used again, so no old partition is taken for a new one."""

    topic_id: TopicId
    number: int
