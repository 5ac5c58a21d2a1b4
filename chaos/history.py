"""The history of a run: one line of JSON per invocation, completion, fault and sample, in the order in which they happened.

A worker writes an `Invoked` before a call and one `Completed` with the same `call` after it. The outcome is never guessed: `OK`
and `FAILED` are what the server said, `UNKNOWN` is anything else (a timeout, a cut connection, a killed worker). A call
without a completion counts as unknown. The checker (`chaos/checker/`) reads nothing but these lines, so an old
run can be judged again.

Times are seconds since the run began, by one monotonic clock of the machine: taken before the call and after the answer.
The checker orders lines by them, so lines of several workers may be written in any order.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec


class CallOutcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


DELETED = ""
"""The value that readers of a table's changes report for a deleted row."""


class RecordLocation(NamedTuple):
    """Where a record is. `offset` is -1 while it is not known."""

    topic: str
    partition: int
    offset: int


class SeenRecord(NamedTuple):
    """A record as a reader got it. Values are unique over the run; `cursor` is -1 on surfaces that don't return it."""

    location: RecordLocation
    value: str
    cursor: int = -1
    key: str | None = None


# The calls of workers. Each is one variant of `Call`; the tag is its name in the file.


class SendCall(msgspec.Struct, frozen=True, tag="send"):
    """Sends records to one or more partitions. `atomic`: all or none may be seen. `idempotent`: each is stored at most once.

    If only some records were acknowledged, the outcome is `UNKNOWN`, and the answer has locations for those.
    """

    records: tuple[tuple[RecordLocation, str], ...]
    atomic: bool = False
    idempotent: bool = True


class PollCall(msgspec.Struct, frozen=True, tag="poll"):
    """A read. `session` names one reader's unbroken read of assigned partitions: a new one begins with each assign or seek.

    `subscribed` reads may skip or step back when the group rebalances: the worker writes an `OwnedCall` when it does, inside
    the poll in which it learns of it. `committed` reads see ended transactions only. `begins`, on the first poll of a session:
    the offsets from which it reads, where the worker chose them. `final` reads come last and begin at the start.
    """

    session: str
    subscribed: bool = False
    committed: bool = False
    final: bool = False
    begins: tuple[RecordLocation, ...] = ()


class CommitCall(msgspec.Struct, frozen=True, tag="commit"):
    """Commits a group's offsets. A `reset` may move them back."""

    group: str
    offsets: tuple[RecordLocation, ...]
    generation: int = -1
    reset: bool = False


class CommittedCall(msgspec.Struct, frozen=True, tag="committed"):
    """Asks for a group's committed offsets."""

    group: str


class OwnedCall(msgspec.Struct, frozen=True, tag="owned"):
    """A member learned its partitions (locations without offset) and its generation."""

    group: str
    member: str
    generation: int


class BoundsCall(msgspec.Struct, frozen=True, tag="bounds"):
    """Asks for the first and the next offset of partitions."""

    topics: tuple[str, ...]


class TransactionCall(msgspec.Struct, frozen=True, tag="transaction"):
    """Writes records and a group's offsets that become visible together, or never if `aborted` on purpose."""

    producer: str
    records: tuple[tuple[RecordLocation, str], ...]
    reads: tuple[str, ...] = ()
    group: str | None = None
    offsets: tuple[RecordLocation, ...] = ()
    aborted: bool = False


class ChangeCall(msgspec.Struct, frozen=True, tag="change"):
    """Changes rows in one SQL transaction: (table, key, value or None for a delete)."""

    rows: tuple[tuple[str, str, str | None], ...]


class RowsCall(msgspec.Struct, frozen=True, tag="rows"):
    """Reads the whole content of a table with SELECT."""

    table: str
    final: bool = False


class TakeCall(msgspec.Struct, frozen=True, tag="take"):
    """Receives events of a queue group. `final` calls come last, until nothing is left."""

    group: str
    final: bool = False


class SettleCall(msgspec.Struct, frozen=True, tag="settle"):
    """Acks or nacks records that were received from a queue group."""

    group: str
    values: tuple[str, ...]
    acked: bool = True


Call = (
    SendCall
    | PollCall
    | CommitCall
    | CommittedCall
    | OwnedCall
    | BoundsCall
    | TransactionCall
    | ChangeCall
    | RowsCall
    | TakeCall
    | SettleCall
)


class CallAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a completed call: the fields that fit the call are set."""

    locations: tuple[RecordLocation, ...] = msgspec.field(default=(), name="places")
    """Send, Transaction: where the records went, in their order, with offset -1 if it is not known. Committed: the offsets
    of the partitions that were asked for, -1 for those that have none. Owned: the partitions."""
    seen: tuple[SeenRecord, ...] = ()
    """Poll, Take: the records, in the order in which the reader got them."""
    starts: tuple[RecordLocation, ...] = ()
    ends: tuple[RecordLocation, ...] = ()
    """Bounds: the first offset, and the offset that the next record gets."""
    rows: tuple[tuple[str, str], ...] = ()
    """Rows: key and value of each."""
    out_of_range: tuple[RecordLocation, ...] = ()
    """Poll: partitions whose next offset was refused as below the start; the reader begins a new session."""


class Invoked(msgspec.Struct, frozen=True, tag="invoked"):
    time: float
    worker: str
    call: int
    what: Call
    surface: str
    """kafka-librdkafka, kafka-aiokafka, http, sql, sdk, queue."""


class Completed(msgspec.Struct, frozen=True, tag="completed", omit_defaults=True):
    time: float
    call: int
    outcome: CallOutcome
    answer: CallAnswer = CallAnswer()
    error: str = ""


class RunPhase(msgspec.Struct, frozen=True, tag="phase"):
    """steady, faults, heal, final: in that order. `heal` is written when the last fault has been reverted."""

    time: float
    name: str


class DeclaredTopic(msgspec.Struct, frozen=True, tag="declared", omit_defaults=True):
    """A topic that the run has made. Topics that are not declared are judged as if they were kept and fed by no table."""

    time: float
    topic: str
    kept: bool = True
    """No retention: its first offset stays 0."""
    table: str = ""
    """The table whose changes it holds. Readers give the row's key as key and its value as value, `DELETED` for a delete."""
    routed: bool = False
    """The changes come by a route, through the pipeline; otherwise it is the table's own change topic."""


class Fault(msgspec.Struct, frozen=True, tag="fault", omit_defaults=True):
    """A fault was injected. `until` is when it was reverted; `down`: the server was not running meanwhile."""

    time: float
    kind: str
    detail: str = ""
    until: float = -1.0
    ready: float = -1.0
    """When the server reported that it was ready again."""
    down: bool = False
    started: float = -1.0
    """When the server was started again, after the fault itself and the inspection of its folder."""


class FsckInspection(msgspec.Struct, frozen=True, tag="inspected", omit_defaults=True):
    """`tailrace fsck` of the folder while the server was down: what it found wrong, one line each.

    `damaged`: files had been damaged on purpose, so that there must be findings.
    """

    time: float
    findings: tuple[str, ...] = ()
    damaged: bool = False


class ResourceSample(msgspec.Struct, frozen=True, tag="sample"):
    """The resources of the server's process at a point in time."""

    time: float
    rss_bytes: int
    files: int
    threads: int
    disk_bytes: int


class ServerStopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The server was stopped with SIGTERM: how long that took, and the exit code."""

    time: float
    seconds: float
    code: int


class ReplayInspection(msgspec.Struct, frozen=True, tag="replayed", omit_defaults=True):
    """All events of a captured database were replayed at the end and held against its tables: what was wrong, if anything."""

    time: float
    source: str
    transactions: int
    events: int
    findings: tuple[str, ...] = ()


class CopyInspection(msgspec.Struct, frozen=True, tag="copied", omit_defaults=True):
    """Topics were held against their copies at the end, and the offsets of groups against each other: what was wrong, if
    anything."""

    time: float
    shadow: str
    records: int
    offsets: int
    findings: tuple[str, ...] = ()


HistoryLine = (
    Invoked
    | Completed
    | RunPhase
    | DeclaredTopic
    | Fault
    | FsckInspection
    | ReplayInspection
    | CopyInspection
    | ResourceSample
    | ServerStopped
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HistoryLine)


def write_lines(lines: Iterable[HistoryLine]) -> bytes:
    return _encoder.encode_lines(lines)


def read_lines(path: Path) -> Iterator[HistoryLine]:
    """Yield the lines of a run. A last line that is incomplete, because the writer was killed, is left out."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield _decoder.decode(line)


def label(location: RecordLocation) -> str:
    offset = f"offset {location.offset}" if location.offset >= 0 else "an offset that nobody told"
    return f"{location.topic}/{location.partition} {offset}"
