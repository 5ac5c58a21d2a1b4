"""Shadows: topics that a process keeps equal in two clusters, Tailrace and an Apache Kafka, so that their users can move from one to the other.

A shadow `to` Kafka copies topics of this server; a shadow `from` Kafka copies topics of that cluster to this server. The cluster that
is read is the **origin**, the one that is written is the **target**. The definition is state of the server, whatever the direction. How far
the copy has come is kept in the target, in the transactions that write the records, and is only reported here.
"""

from typing import Literal

import msgspec

from tailrace.model.ids import ShadowId

ShadowDirection = Literal["to", "from"]
"""`to` copies topics of this server to Kafka, `from` copies topics of Kafka to this server."""
CopiedBy = Literal["server", "command"]
"""Who copies: a process that the server starts, or one that is started by `tailrace shadow run` elsewhere."""
LocalProducers = Literal["refuse", "forward"]
"""What happens after a cut-over to records that are still produced here: they are refused, or stored and copied on to Kafka."""
ShadowPhase = Literal["copying", "fenced", "cut over"]
"""`fenced`: a cut-over is under way, and topics take no records here until it is done or given up."""
ShadowState = Literal["stopped", "starting", "back-filling", "live", "retrying", "failed"]
"""`back-filling` copies what was there before; `retrying` will pass by itself; `failed` lasts until somebody has done what the advice
says."""


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
    """Settings of librdkafka for the connections to Kafka, none of them secret: `security.protocol`, `sasl.mechanism`, `ssl.ca.location`."""
    user: str | None = None
    password_env: str | None = None
    """The environment variable that holds the password where the copying runs."""
    password_file: str | None = None
    """The file that holds the password where the copying runs."""
    throttle_bytes: int | None = None
    """Bytes of keys and values that are copied in a second at most."""
    copied_by: CopiedBy = "server"
    created_ms: int
    phase: ShadowPhase = "copying"
    producers: LocalProducers = "refuse"
    """What was chosen for the time after the cut-over."""


class PartitionProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a partition is copied. Offsets are those of the origin, except `target_end`."""

    topic: str
    partition: int
    position: int
    """The offset of the next record to copy: all before it is in the target."""
    end: int
    """The end of the partition, of committed records."""
    target_end: int
    """The offset in the target behind the last record that was copied."""


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the copying process reports about itself."""

    state: ShadowState = "starting"
    error: str | None = None
    """What went wrong, if the state is `retrying` or `failed`."""
    advice: str | None = None
    """What to do about it."""
    partitions: tuple[PartitionProgress, ...] = ()
    records: int = 0
    """Records and bytes of keys and values that were copied since the process was started."""
    bytes: int = 0
    groups: int = 0
    """Groups whose offsets were set in the target."""
    notes: tuple[str, ...] = ()
    """What deserves attention though the copying runs, such as groups of the target that have members of their own."""

    @property
    def lag(self) -> int:
        """Return how many offsets of the origin are not copied yet. Offsets without a record count, so it is an upper bound."""
        return sum(max(0, each.end - each.position) for each in self.partitions)


class ShadowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A shadow as `system.shadows` shows it."""

    shadow: Shadow
    state: ShadowState
    owner: str | None
    seen_ms: int
    report: ShadowReport
