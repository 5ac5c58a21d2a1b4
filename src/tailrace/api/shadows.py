"""Schemas of `/api/shadows`. Those that the copying process and the commands use are not part of the OpenAPI document: both
sides are of the same version."""

import msgspec

from tailrace.model.shadow import LocalProducers, Shadow, ShadowReport, ShadowStatus


class ShadowView(msgspec.Struct):
    name: str
    direction: str
    """`to` if topics of this server are copied to Kafka, `from` if they are copied from there."""
    bootstrap: str
    topics: list[str]
    groups: list[str]
    phase: str
    """`copying`, `fenced` while a cut-over is under way, or `cut over`."""
    producers: str | None
    """After a cut-over: whether records that are produced here are refused, or taken and copied on."""
    state: str
    error: str | None
    advice: str | None
    """What to do about the error."""
    notes: list[str]
    owner: str | None
    """The process that copies."""
    lag: int
    """Offsets that are not copied yet: an upper bound of the records."""
    lag_seconds: float | None
    """How long the oldest record that is not copied has been there."""
    records: int
    """Records that were copied since the process was started, and their bytes as they are stored."""
    bytes: int
    records_per_second: int
    bytes_per_second: int


class ShadowPartitionView(msgspec.Struct):
    topic: str
    partition: int
    position: int
    """The offset of the next record to copy."""
    end: int
    start: int
    """The first offset of the partition when the copying began."""
    target_end: int
    """The offset in the target behind the last record that was copied."""


class ShadowDetails(ShadowView):
    partitions: list[ShadowPartitionView]


class AttachShadowBody(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    """Describes the process for people: host, process."""


class AttachShadowResponse(msgspec.Struct):
    """What the copying process has to know to begin."""

    shadow: Shadow
    epoch: int
    kafka: str
    """The address of the server's own Kafka listener, as clients reach it."""
    cluster_id: str
    """Identifies the server's log to Kafka's clients. A Kafka with this id is the server itself."""


class ReportShadowBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    owner: str
    report: ShadowReport


class ReportShadowResponse(msgspec.Struct):
    shadow: Shadow
    """The definition as it is now: the phase, the throttle and the topics may have changed."""


class ShadowStatusResponse(msgspec.Struct):
    """What the commands `status`, `verify`, `cut-over` and `roll-back` have to know."""

    status: ShadowStatus
    kafka: str
    """The address of the server's own Kafka listener, as clients reach it."""
    cluster_id: str


class FenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Begins a cut-over: topics that the shadow copies take no records here from now on. Without a renewal for
    `silence_seconds` the fence ends by itself."""

    owner: str
    """Describes the command for people: user, host, process."""
    producers: LocalProducers
    """What the cut-over will choose. It is refused at once if it can't be chosen."""
    fence: int | None = None
    """The number of the fence that is renewed."""
    is_rehearsal: bool = False
    """Whether nothing is fenced: the answer says what a fence would say now."""


class FencedPartition(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    topic_id: str
    """The id of the topic, as Kafka writes it."""
    partition: int
    start: int
    end: int
    """Nothing comes behind it while the fence is there, except markers of open transactions and the rest of open writes."""


class FenceResponse(msgspec.Struct):
    fence: int
    """Names the fence in the requests that follow; 0 for a rehearsal."""
    partitions: list[FencedPartition]
    """All partitions of topics that are fenced."""
    open_transactions: int
    """Transactions that have records in these partitions and have not ended. They may end, and take no more records."""
    open_writes: int
    """Large writes of Spark that were decided before, and may still go to these partitions."""
    silence_seconds: int
    """How long the command may be silent before the fence ends."""
    seconds_left: int
    """How long the fence can be renewed."""


class CutOverBody(msgspec.Struct, forbid_unknown_fields=True):
    """Ends a cut-over whose copy was verified. Without a fence only for a shadow from Kafka, which can't be fenced."""

    producers: LocalProducers
    fence: int | None = None


class UnfenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Gives a cut-over up: topics take records here again."""

    fence: int | None = None
    """The number of the fence; `None` gives up whichever there is."""
    note: str | None = None
    """Why, for `system.shadows`."""


class RollBackBody(msgspec.Struct, forbid_unknown_fields=True):
    """Takes a cut-over back: topics take records here again, and are copied as before."""

    note: str | None = None


class ShadowResponse(msgspec.Struct):
    shadow: Shadow
