"""Schemas of `/api/shadows`. Those that the copying process uses are not part of the OpenAPI document: both are of the same version."""

import msgspec

from tailrace.model.shadow import LocalProducers, PartitionProgress, Shadow, ShadowReport


class AttachShadowBody(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    """Describes the process for people: host, process."""


class AttachShadowResponse(msgspec.Struct):
    """What the copying process has to know to begin."""

    shadow: Shadow
    epoch: int
    kafka: str
    """The address of the server's own Kafka listener, as clients reach it."""


class ReportShadowBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    owner: str
    report: ShadowReport


class ReportShadowResponse(msgspec.Struct):
    shadow: Shadow
    """The definition as it is now: the phase, the throttle and the topics may have changed."""


class FenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Begins a cut-over: topics that the shadow copies take no records here from now on."""


class FenceResponse(msgspec.Struct):
    partitions: list[PartitionProgress]
    """Where the fenced partitions end: `end` is set, and no record will come behind it while the fence is there."""


class CutOverBody(msgspec.Struct, forbid_unknown_fields=True):
    """Ends a cut-over whose copy was verified."""

    producers: LocalProducers


class UnfenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Gives a cut-over up, or rolls it back: topics take records here again."""
