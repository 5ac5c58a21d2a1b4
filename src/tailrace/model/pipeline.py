"""A pipeline as the server sees it: who runs it, how far it has come, how it is doing.

A pipeline reads sources and publishes to topics. Its **marks** say how far it has come in each source; they move in the same
frame that holds what was made of the source up to there, so no part of a source takes effect twice.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

NO_MARK = -1


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
    rows: int = 0
    """Source rows of the last batch."""
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    lag: int = 0
    """Source rows that wait."""
    routes: int = 0
    dead_letters: int = 0
    """Rows sent to dead letters since the start."""
    last_error: str | None = None


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    epoch: int
    owner: str
    """Who runs it or ran it last, in its own words."""
    running: bool
    seen_ms: int
    """When it was last heard of."""
    marks: Mapping[str, int]
    report: PipelineReport


class StagedPublish(NamedTuple):
    """What a publish of staged batches did."""

    records: int
    duplicates: int
    """Records that dedup found to be there already."""
    skipped: int
    """Chunks that had taken effect before."""
