"""A pipeline as the server sees it: who runs it, how far it has come, how it is doing.

A pipeline reads sources and publishes to topics. Its **marks** say how far it has come in each source; they move in the same
frame that holds what was made of the source up to there, so no part of a source takes effect twice.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tailrace.model.ids import TopicId

NO_MARK = -1

ROUTER = "router"
"""The pipeline that routes the changes of tables. There is one, because each change is to reach its topics once."""


def change_source(changes: TopicId) -> str:
    """The router's source for the changes of a table, by the topic that holds them."""
    return f"{changes}/0"


def changes_of(source: str) -> TopicId | None:
    """The topic of changes that the router calls so; `None` for names that it gives to none."""
    number = source.removesuffix("/0")
    return TopicId(int(number)) if number.isascii() and number.isdigit() and len(number) < 20 else None


class MarkMove(NamedTuple):
    """One step of a pipeline through one source."""

    source: str
    before: int | None
    """Where the pipeline must stand for the step to count; `None` is anywhere before `after`."""
    after: int


class Lease(msgspec.Struct, frozen=True):
    """The right to run a pipeline. Whoever holds an older epoch is refused."""

    pipeline: str
    epoch: int
    marks: Mapping[str, int]


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a pipeline says it is doing."""

    batch: int = -1
    """The number of the last batch."""
    batches: int = 0
    """Since it was started, as all that is counted here."""
    rows: int = 0
    """Source rows of these batches."""
    rows_per_second: float = 0.0
    """Of the last batch."""
    batch_seconds: float = 0.0
    routes: int = 0
    dead_letters: int = 0
    last_error: str | None = None
    """Of the last batch that failed, as long as none has succeeded after it."""


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    epoch: int
    owner: str
    """Who runs it or ran it last, in its own words."""
    running: bool
    seen_ms: int
    """When it was last heard of."""
    marks: Mapping[str, int]
    idle_seconds: float | None
    """Since it published something; `None` if it has not, since the server was started."""
    lag: int | None = None
    """Changes that wait to be routed; `None` for pipelines that route none."""
    report: PipelineReport


class StagedPublish(NamedTuple):
    """What a publish of staged batches did."""

    records: int
    duplicates: int
    """Records that dedup found to be there already."""
    skipped: int
    """Chunks that had taken effect before."""

    def plus(self, other: "StagedPublish") -> "StagedPublish":
        return StagedPublish(*(mine + its for mine, its in zip(self, other, strict=True)))
