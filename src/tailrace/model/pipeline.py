"""Pipelines: leases, marks, reports and status.

A pipeline reads sources and publishes to topics. Its **marks** say how far it has read each source. A mark moves in the same
frame as the records that were made of the source up to there, so no part of a source takes effect twice.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.ids import TopicId

NO_MARK = -1

ROUTER = "router"
"""The name of the pipeline that routes the changes of tables. There is one, because each change is routed once."""


Latency = Literal["batch", "realtime"]
"""How the router is to route: in micro-batches, or in real time where there is no backlog."""

PipelineMode = Literal["micro-batch", "real-time"]
"""How the router routes at the moment."""


def change_source(changes: TopicId) -> str:
    """Return the router's name of a source: the changes of a table, by the topic that holds them."""
    return f"{changes}/0"


def changes_of(source: str) -> TopicId | None:
    """Return the topic of changes that a source of the router stands for, or `None` if there is no such source."""
    number = source.removesuffix("/0")
    return TopicId(int(number)) if number.isascii() and number.isdigit() and len(number) < 20 else None


class MarkMove(NamedTuple):
    """One move of a pipeline's mark in one source."""

    source: str
    before: int | None
    """Where the mark must be for the move to take effect. `None` is anywhere before `after`."""
    after: int


class Lease(msgspec.Struct, frozen=True):
    """The right to run a pipeline. Requests with an older epoch are rejected."""

    pipeline: str
    epoch: int
    marks: Mapping[str, int]
    latency: Latency = "batch"
    """What ALTER PIPELINE has set."""


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline reports about itself, since it was started."""

    mode: PipelineMode = "micro-batch"
    batch: int = -1
    """The number of the last batch; -1 if there was none, as in real time."""
    batches: int = 0
    """The number of batches; in real time, of short intervals in which changes were routed."""
    rows: int = 0
    """Rows of the sources in these batches."""
    rows_per_second: float = 0.0
    """The rate of the last batch."""
    batch_seconds: float = 0.0
    routes: int = 0
    dead_letters: int = 0
    last_error: str | None = None
    """The error of the last batch that failed, if none has succeeded after it; or why it can't route in real time."""


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    epoch: int
    owner: str
    """The name that the process which runs it, or ran it last, gives itself."""
    running: bool
    seen_ms: int
    """When its last request came."""
    marks: Mapping[str, int]
    idle_seconds: float | None
    """Seconds since it published something, or `None` if it has not since the server was started."""
    lag: int | None = None
    """Changes that wait to be routed, or `None` for pipelines that route none."""
    latency: Latency
    """What ALTER PIPELINE has set. The settings of the process that runs it win over it."""
    report: PipelineReport


class StagedPublish(NamedTuple):
    """The result of publishing staged batches."""

    records: int
    duplicates: int
    """Records that were duplicates of existing ones."""
    skipped: int
    """Chunks that took effect before."""

    def plus(self, other: "StagedPublish") -> "StagedPublish":
        return StagedPublish(*(mine + its for mine, its in zip(self, other, strict=True)))
