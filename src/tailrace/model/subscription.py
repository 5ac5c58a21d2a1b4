"""What a subscriber is sent."""

from collections.abc import Sequence
from enum import StrEnum

from tailrace.model.ids import Cursor
from tailrace.model.record import Record


class LogEdge(StrEnum):
    BEGINNING = "beginning"
    LATEST = "latest"


StartCursor = LogEdge | Cursor
"""Where a subscription begins; a cursor is the first one that is sent."""


class EventBatch:
    """Records of one partition that follow each other. All subscribers who are sent the same records get the same object, so
    that work done for one of them, such as encoding, can be found again by it. It is never changed.
    """

    __slots__ = ("__weakref__", "partition", "records", "topic")

    def __init__(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
