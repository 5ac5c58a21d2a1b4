"""Where to begin to read a partition."""

from enum import StrEnum
from typing import NamedTuple


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


class AtOffset(NamedTuple):
    offset: int


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


Start = Edge | AtOffset | AtTime
