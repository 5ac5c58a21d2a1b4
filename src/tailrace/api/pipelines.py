"""Schemas of `/api/pipelines` and of `POST /api/batches/offsets`, which pipelines use.

They are not part of the OpenAPI document: server and pipeline are of the same version.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from tailrace.model.fetch import StartEdge
from tailrace.model.pipeline import Latency, PipelineReport
from tailrace.model.route import Route


class TakeLeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    """Describes the owner for people: host, process, command."""
    take_over: bool = False


class ReleaseLeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int


class PinBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    starts: dict[str, int]


class MarksResponse(msgspec.Struct):
    marks: Mapping[str, int]


class SourcesBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    beyond: dict[str, int] = {}
    """Wait until one of these sources has records beyond its offset."""
    wait_ms: int = 0


class PendingSourceView(msgspec.Struct):
    """A table whose changes are not all routed yet."""

    source: str
    table: int
    changes: str
    changes_uuid: UUID
    mark: int
    end: int
    routes: int


class RealtimeBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int


class RealtimeView(msgspec.Struct):
    """What a query of the real-time mode has to know."""

    version: int
    """The cursor of the last change of routes."""
    start: int
    """The cursor to read the changes from."""
    routes: list[Route]
    """The routes that apply to changes that are not routed yet."""


class RealtimeProgress(msgspec.Struct):
    version: int
    lag: int
    """Changes that wait to be routed."""
    changes: int
    """Changes that decisions were taken on since the server was started, and the records made of them."""
    records: int
    dead_letters: int


class StagesBody(msgspec.Struct, forbid_unknown_fields=True):
    stages: list[tuple[str, int]]
    """The names of stages, each with its number of parts, in the order in which they are published."""


class PublishStagesBody(StagesBody, forbid_unknown_fields=True):
    epoch: int
    """The epoch of the lease."""


class WriteStagesBody(StagesBody, forbid_unknown_fields=True):
    """A batch that was staged by a writer without a lease."""

    source: str
    number: int
    """The number of the batch. If this number or a higher one was written before, nothing is written."""


class PublishStagesResponse(msgspec.Struct):
    records: int = 0
    duplicates: int = 0
    skipped: int = 0
    is_done: bool = True
    """If false, the write is still running: send the same request again."""


class ReportBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    report: PipelineReport


class ReportResponse(msgspec.Struct):
    latency: Latency
    """What ALTER PIPELINE has set."""


class OffsetsBody(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] = []
    pattern: str | None = None
    """All topics that match it, in addition to `topics`."""
    at: StartEdge | int = StartEdge.LATEST
    """`earliest`, `latest`, or milliseconds since 1970 for the first record at that time or later."""
    beyond: dict[str, list[int]] = {}
    """Wait until a partition of one of these topics has records beyond these offsets."""
    wait_ms: int = 0


class TopicOffsetsView(msgspec.Struct):
    topic: str
    topic_id: int
    topic_uuid: UUID
    """A topic that is created again under the same name has another one."""
    partitions: list[int]
    max_batch_bytes: int
    """The largest batch as stored; no record is larger."""


class OffsetsResponse(msgspec.Struct):
    topics: Sequence[TopicOffsetsView]
    cursor: int
    """The end of the log, at or after these offsets."""
    max_key_bytes: int
    max_value_bytes: int
