"""What happened in a run: one line of JSON per invocation, completion, fault and sample, in the order in which they came about.

A worker writes an `Invoked` before it asks and one `Completed` with the same `call` after. The outcome is never guessed: `OK`
and `FAILED` are what the server said, `UNKNOWN` is all else (a time-out, a cut connection, a killed worker). A call without a
completion counts as unknown. The checker (`chaos/checker/`) reads nothing but these lines, so an old run can be judged again.

Times are seconds since the run began, by one monotonic clock of the machine: taken before asking and after the answer. The
checker orders lines by them, so those of several workers may be put together in any order.
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
"""The value that readers of a table's changes give for a deleted row."""


class RecordLocation(NamedTuple):
    """Where a record lies. `offset` is -1 while nobody has said it."""

    topic: str
    partition: int
    offset: int


class SeenRecord(NamedTuple):
    """A record as a reader got it. Values are unique over the run; `cursor` is -1 on surfaces that don't tell it."""

    place: RecordLocation
    value: str
    cursor: int = -1
    key: str | None = None


# What workers ask. Each is one variant of `Call`; the tag is its name in the file.


class SendCall(msgspec.Struct, frozen=True, tag="send"):
    """Records for one or more partitions. `atomic`: all or none may be seen. `idempotent`: each is stored at most once.

    Of one that was answered for some records only, the outcome is `UNKNOWN`, and the answer has places for those.
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
    """A group's offsets. A `reset` may move them back."""

    group: str
    offsets: tuple[RecordLocation, ...]
    generation: int = -1
    reset: bool = False


class CommittedCall(msgspec.Struct, frozen=True, tag="committed"):
    """A question for a group's offsets."""

    group: str


class OwnedCall(msgspec.Struct, frozen=True, tag="owned"):
    """A member learned which partitions it has (places without offset), and in which generation."""

    group: str
    member: str
    generation: int


class BoundsCall(msgspec.Struct, frozen=True, tag="bounds"):
    """A question for the first and the next offset of partitions."""

    topics: tuple[str, ...]


class TransactionCall(msgspec.Struct, frozen=True, tag="transaction"):
    """Records, and a group's offsets, that become visible together, or never when `aborted` on purpose."""

    producer: str
    records: tuple[tuple[RecordLocation, str], ...]
    reads: tuple[str, ...] = ()
    group: str | None = None
    offsets: tuple[RecordLocation, ...] = ()
    aborted: bool = False


class ChangeCall(msgspec.Struct, frozen=True, tag="change"):
    """Row changes of one SQL transaction: (table, key, value or None for a delete)."""

    rows: tuple[tuple[str, str, str | None], ...]


class RowsCall(msgspec.Struct, frozen=True, tag="rows"):
    """The whole content of a table, as SELECT gives it."""

    table: str
    final: bool = False


class TakeCall(msgspec.Struct, frozen=True, tag="take"):
    """Events of a queue group. They are settled by `SettleCall` calls. `final` ones come last, until nothing is left."""

    group: str
    final: bool = False


class SettleCall(msgspec.Struct, frozen=True, tag="settle"):
    """An ack or a nack of records taken from a queue group."""

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
    """What a completed call brought: the fields that fit the call are set."""

    places: tuple[RecordLocation, ...] = ()
    """Send, Transaction: where the records went, in their order, with offset -1 where nobody said. Committed: the offsets
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
    """steady, faults, heal, final: in that order. `heal` is written when the last fault has been taken back."""

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
    """Something was done to the system. `until` is set when it was taken back; `down`: the server was not running meanwhile."""

    time: float
    kind: str
    detail: str = ""
    until: float = -1.0
    ready: float = -1.0
    """When the server said that it was ready again."""
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
    """What the server's process took at a moment."""

    time: float
    rss_bytes: int
    files: int
    threads: int
    disk_bytes: int


class ServerStopped(msgspec.Struct, frozen=True, tag="stopped"):
    """An end by SIGTERM: how long it took and what the exit code was."""

    time: float
    seconds: float
    code: int


HistoryLine = Invoked | Completed | RunPhase | DeclaredTopic | Fault | FsckInspection | ResourceSample | ServerStopped

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HistoryLine)


def write_lines(lines: Iterable[HistoryLine]) -> bytes:
    return _encoder.encode_lines(lines)


def read_lines(path: Path) -> Iterator[HistoryLine]:
    """The lines of a run. A last line that was cut off by a kill of the writer is left out."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield _decoder.decode(line)


def label(place: RecordLocation) -> str:
    offset = f"offset {place.offset}" if place.offset >= 0 else "an offset that nobody told"
    return f"{place.topic}/{place.partition} {offset}"
