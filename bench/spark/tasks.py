"""What a Spark process is asked to do: values that travel as lines of JSON."""

from collections.abc import Mapping

import msgspec

from bench.answers import Failed


class Side(msgspec.Struct, frozen=True):
    """How Spark reaches a server."""

    format: str
    options: Mapping[str, str]
    jars: tuple[str, ...] = ()


class ReadTopic(msgspec.Struct, frozen=True, tag=True):
    """Count the records of a topic and add up what their values hold."""

    topic: str


class WriteTopic(msgspec.Struct, frozen=True, tag=True):
    """Rows with keys `0, 1, ...` and values of one size."""

    topic: str
    rows: int
    value_bytes: int


class RouteTopic(msgspec.Struct, frozen=True, tag=True):
    """Change events from one topic to another where their row meets a condition, by a streaming query, until all are read."""

    source: str
    target: str
    condition: str
    rows_a_batch: int
    checkpoint: str


AnyTask = ReadTopic | WriteTopic | RouteTopic


class Found(msgspec.Struct, frozen=True, tag=True):
    seconds: float
    records: int = 0
    value_bytes: int = 0


class Batches(msgspec.Struct, frozen=True, tag=True):
    """Rows and seconds of each batch of a query."""

    rows: list[int]
    seconds: list[float]


Answer = Found | Batches | Failed
