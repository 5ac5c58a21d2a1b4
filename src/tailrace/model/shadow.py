"""Shadows: topics that a process keeps equal in two clusters, Tailrace and an Apache Kafka, so that their users can move
from one to the other.

A shadow `to` Kafka copies topics of this server; a shadow `from` Kafka copies topics of that cluster to this server. The
cluster that is read is the **origin**, the one that is written is the **target**. The definition is state of the server,
whatever the direction. How far the copy has come is kept in the target, in the transactions that write the records, and is
only reported here.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from tailrace.model.ids import ShadowId
from tailrace.model.limits import Limits
from tailrace.model.names import TopicPattern, is_reserved, parse_pattern
from tailrace.model.server_credentials import ServerCredentials
from tailrace.model.table import CHANGES_PREFIX

ShadowDirection = Literal["to", "from"]
"""`to` copies topics of this server to Kafka, `from` copies topics of Kafka to this server."""
CopiedBy = Literal["server", "command"]
"""Who copies: a process that the server starts, or one that is started by `tailrace shadow run` elsewhere."""
LocalProducers = Literal["refuse", "forward"]
"""What happens after a cut-over to records that are still produced here: they are refused, or stored and copied on to Kafka."""
ShadowPhase = Literal["copying", "fenced", "cut over"]
"""`fenced`: a cut-over is under way, and topics take no records here until it is done or given up."""
ShadowState = Literal["stopped", "starting", "back-filling", "live", "retrying", "failed"]
"""`back-filling` copies what was there before; `retrying` will pass by itself; `failed` lasts until somebody has done what the
advice says."""

CONNECTION_SETTINGS = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "client.id",
    "socket.timeout.ms",
    "socket.connection.setup.timeout.ms",
)
"""The settings of connections that a shadow may have. Names and values are those of librdkafka; none of them is secret."""

_KAFKAS_OWN = "__"
"""How the names of topics begin in which Kafka keeps its own state."""


class LostOffsets(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of the origin that were deleted there before they were copied."""

    topic: str
    partition: int
    start: int
    end: int
    """The first offset that is still there."""
    topic_id: str = ""
    """The id of the topic at the origin, as Kafka writes it. A topic that is made again under its name has another."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A cut-over that is under way."""

    number: int
    """Never reused by the shadow. The command that cuts over names it in its requests."""
    owner: str
    """Describes the command for people: user, host, process."""
    since_ms: int


class Shadow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: ShadowId
    """Never reused, not even for a shadow of the same name."""
    name: str
    direction: ShadowDirection
    bootstrap: str
    """The addresses of Kafka: `kafka-1:9092,kafka-2:9092`."""
    topics: tuple[str, ...]
    """Patterns of the topics that are copied: `app.>`."""
    groups: tuple[str, ...] = ("*",)
    """The groups whose offsets are kept in step: names, with `*` for any characters."""
    settings: dict[str, str] = {}
    """Values of `CONNECTION_SETTINGS`, for the connections to Kafka."""
    user: str | None = None
    password_env: str | None = None
    """The environment variable that holds the password where the copying runs."""
    password_file: str | None = None
    """The file that holds the password where the copying runs."""
    throttle_bytes: int | None = None
    """Bytes that are copied in a second at most, as they are stored."""
    copied_by: CopiedBy = "server"
    created_ms: int
    is_paused: bool = False
    """Whether nothing is copied until ALTER SHADOW ... RESUME."""
    skipped: tuple[LostOffsets, ...] = ()
    """What was lost, and may be left out of the copy: ALTER SHADOW ... SKIP LOST has said so."""
    lost_deletions: tuple[LostOffsets, ...] = ()
    """Where tombstones may have been removed by compaction before they were copied, because that took too long."""
    phase: ShadowPhase = "copying"
    producers: LocalProducers = "refuse"
    """What was chosen for the time after the cut-over."""
    fence: Fence | None = None
    """Set while the phase is `fenced`."""
    fences: int = 0
    """The number of the last fence."""
    note: str | None = None
    """What became of the last cut-over, if it was given up."""

    @property
    def is_copied(self) -> bool:
        """Return whether a process should copy now. After a cut-over from Kafka there is nothing left to copy."""
        return not self.is_paused and not (self.direction == "from" and self.phase == "cut over")

    @property
    def refuses(self) -> bool:
        """Return whether topics that were cut over take no records here any more."""
        return self.direction == "to" and self.phase == "cut over" and self.producers == "refuse"


class CopiedTopics:
    """The topics that a shadow copies."""

    def __init__(self, shadow: Shadow, limits: Limits) -> None:
        self._patterns: Sequence[TopicPattern] = [parse_pattern(pattern, limits) for pattern in shadow.topics]

    def includes(self, name: str) -> bool:
        """Return whether the shadow copies the topic of this name.

        Changes of tables are copied if a pattern spells out `_changes`. Kafka's own topics, whose names begin with two
        underscores, and those of the server are not copied.
        """
        if name.startswith(_KAFKAS_OWN) or (is_reserved(name) and not name.startswith(CHANGES_PREFIX)):
            return False
        return any(pattern.matches(name) for pattern in self._patterns)

    def overlap(self, other: "CopiedTopics") -> bool:
        """Return whether there can be a topic that both shadows copy."""
        return any(one.overlaps(another) for one in self._patterns for another in other._patterns)


class ShadowPartition(msgspec.Struct, frozen=True, array_like=True):
    """How far a partition is copied. Offsets are those of the origin, except `target_end`."""

    topic: str
    partition: int
    position: int
    """The offset of the next record to copy: all before it is in the target."""
    end: int
    """The end of the partition, of committed records."""
    target_end: int
    """The offset in the target behind the last record that was copied."""
    topic_id: str = ""
    """The id of the topic at the origin, as Kafka writes it."""
    start: int = 0
    """The first offset of the partition when the copying began."""


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the copying process reports about itself."""

    state: ShadowState = "starting"
    error: str | None = None
    """What went wrong, if the state is `retrying` or `failed`."""
    advice: str | None = None
    """What to do about it."""
    partitions: tuple[ShadowPartition, ...] = ()
    """All partitions that are copied, in every report: what is not named is not known any more."""
    records: int = 0
    """Records that were copied since the process was started, and their bytes as they are stored."""
    bytes: int = 0
    records_per_second: int = 0
    """Of the last seconds."""
    bytes_per_second: int = 0
    lag_seconds: float | None = None
    """How long the oldest record that is not copied has been in the origin; 0 if there is none, `None` if it is not known."""
    groups: int = 0
    """Groups whose offsets were set in the target."""
    lost: tuple[LostOffsets, ...] = ()
    """What can't be copied any more, and was not accepted as lost."""
    notes: tuple[str, ...] = ()
    """What deserves attention though the copying runs, such as groups of the target that have members of their own."""

    @property
    def lag(self) -> int:
        """Return how many offsets of the origin are not copied yet. Offsets without a record count, so it is an upper bound."""
        return sum(max(0, each.end - each.position) for each in self.partitions)


class ShadowToCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What `python -m tailrace.shadow check` reads. It writes a list of `ConnectionCheck`."""

    shadow: Shadow
    """Not created yet, so it has no id."""
    kafka: str
    """The address of the server's own Kafka listener, as clients reach it."""
    cluster_id: str
    """Identifies the server's log to Kafka's clients. A Kafka with this id is the server itself."""
    credentials: ServerCredentials | None = None
    """How the process gets in at the server."""


class ShadowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A shadow as `system.shadows` shows it."""

    shadow: Shadow
    state: ShadowState
    owner: str | None
    """The process that copies."""
    seen_ms: int
    report: ShadowReport

    @property
    def notes(self) -> list[str]:
        """Return what deserves attention: what the server knows, and what the process that copies says."""
        last = () if self.shadow.note is None else (self.shadow.note,)
        return [*last, *map(_lost_deletions_note, self.shadow.lost_deletions), *self.report.notes]


def _lost_deletions_note(lost: LostOffsets) -> str:
    return (
        f"deletions of keys in partition {lost.partition} of {lost.topic!r}, offsets {lost.start} to {lost.end}, may have been"
        " compacted away before they were copied: the target may have keys that are gone here. Delete the topic there, and it"
        " is copied anew"
    )
