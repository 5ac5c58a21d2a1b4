"""Where to begin to read a partition."""

from enum import StrEnum
from typing import NamedTuple


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"

    @classmethod
    def _missing_(cls, value: object) -> "Edge | None":
        """In any case, as in SQL."""
        lower = value.lower() if isinstance(value, str) else None
        return next((edge for edge in cls if edge.value == lower), None)


class AtOffset(NamedTuple):
    offset: int


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


Start = Edge | AtOffset | AtTime
