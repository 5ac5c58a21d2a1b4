"""Decodes the messages of PostgreSQL's logical replication, as the plugin `pgoutput` writes them.

The plugin must run with `proto_version` 2 and text format; `streaming` and `messages` may be on. The format is described in
PostgreSQL's documentation under "Logical Replication Message Formats". Every length is compared with the bytes that are left
before anything is read.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, Literal, NamedTuple

from tailrace.model.errors import MalformedMessageError
from tailrace.model.source import ReplicaIdentity

POSTGRES_EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from when PostgreSQL counts its times."""


class Unchanged:
    """The value of a cell that PostgreSQL did not send, because it is stored apart (TOAST) and the update did not change it."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Cell = bytes | Unchanged | None
"""A value as PostgreSQL's text; `None` is a null."""
Cells = list[Cell]
OldKind = Literal["K", "O"]
"""Which columns of an old row were sent: those of the replica identity (the others are null), or all."""


class Begin(NamedTuple):
    final_lsn: int
    """The LSN of the commit."""
    commit_time_us: int
    """Microseconds since 1970."""
    xid: int


class Commit(NamedTuple):
    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class MessageColumn(NamedTuple):
    name: str
    type_oid: int
    type_modifier: int
    is_key: bool
    """Whether it belongs to the replica identity."""


class RelationMessage(NamedTuple):
    """What a table looks like from here on. It comes before the first change of a table, and after its definition changed."""

    oid: int
    schema: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[MessageColumn, ...]


class RelationType(NamedTuple):
    """A type that is not built in, before the relation that uses it."""

    oid: int
    schema: str
    name: str


class Origin(NamedTuple):
    commit_lsn: int
    name: str


class Insert(NamedTuple):
    oid: int
    new: Cells


class Update(NamedTuple):
    oid: int
    old_kind: OldKind | None
    """`None` if no old row was sent: the columns of the replica identity did not change."""
    old: Cells
    new: Cells


class Delete(NamedTuple):
    oid: int
    old_kind: OldKind
    old: Cells


class Truncate(NamedTuple):
    oids: tuple[int, ...]
    options: int
    """1 for CASCADE, 2 for RESTART IDENTITY."""


class LogicalMessage(NamedTuple):
    """What `pg_logical_emit_message` has written."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


class StreamStart(NamedTuple):
    """A part of a large transaction that is still running begins."""

    xid: int
    is_first: bool


class StreamStop(NamedTuple):
    pass


class StreamCommit(NamedTuple):
    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class StreamAbort(NamedTuple):
    """A streamed transaction was rolled back, or the savepoint `subxid` of it."""

    xid: int
    subxid: int


RowMessage = Insert | Update | Delete
Message = (
    Begin
    | Commit
    | RelationMessage
    | RelationType
    | Origin
    | RowMessage
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)

ROW_TAGS = b"IUD"
"""The first bytes of messages that change one row."""
_TAGS_WITH_XID = b"RYIUDTM"
"""Messages that have the id of their transaction (or savepoint) after the first byte inside a stream."""
_IDENTITIES: dict[int, ReplicaIdentity] = {ord("d"): "default", ord("f"): "full", ord("i"): "index", ord("n"): "nothing"}
_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"
_KEY, _OLD, _NEW = b"KON"

_int16 = Struct(">H")
_int32 = Struct(">I")
_signed32 = Struct(">i")
_begin = Struct(">QqI")
_commit = Struct(">BQQq")
_stream_commit = Struct(">IBQQq")
_two_xids = Struct(">II")


def decode(data: bytes, *, in_stream: bool = False) -> Message:
    """Decode one message. `in_stream` says whether it stands between a `StreamStart` and its `StreamStop`."""
    if not data:
        raise MalformedMessageError("the database has sent an empty message of logical replication")
    reader = _DECODERS.get(data[0])
    if reader is None:
        raise MalformedMessageError(
            f"the database has sent a message of logical replication of the unknown type {data[:1]!r};"
            " the plugin must be pgoutput with proto_version 2"
        )
    body = _Body(data, 5 if in_stream and data[0] in _TAGS_WITH_XID else 1)
    message = reader(body)
    body.end()
    return message


def xid_in_stream(data: bytes) -> int:
    """Return the id of the transaction or savepoint to which a message inside a stream belongs."""
    if len(data) < 5:
        raise _cut_off(data)
    xid: int = _int32.unpack_from(data, 1)[0]
    return xid


def without_xid(data: bytes) -> bytes:
    """Return a message from inside a stream as it is sent outside of one, as `decode` reads it by default."""
    if len(data) < 5:
        raise _cut_off(data)
    return data[:1] + data[5:] if data[0] in _TAGS_WITH_XID else data


def relation_oid(data: bytes, *, in_stream: bool = False) -> int:
    """Return the number of the relation that a row message changes, without decoding the message."""
    at = 5 if in_stream else 1
    if len(data) < at + 4:
        raise _cut_off(data)
    oid: int = _int32.unpack_from(data, at)[0]
    return oid


def encode_truncate(oids: Sequence[int]) -> bytes:
    """Return a Truncate of these relations."""
    return b"T" + Struct(f">IB{len(oids)}I").pack(len(oids), 0, *oids)


class _Body:
    """The bytes of a message behind its first byte, and how much of them was read."""

    def __init__(self, data: bytes, at: int) -> None:
        if at > len(data):
            raise _cut_off(data)
        self.data = data
        self.at = at

    def take(self, layout: Struct) -> tuple[int, ...]:
        at = self.at
        self.at = at + layout.size
        if self.at > len(self.data):
            raise _cut_off(self.data)
        return layout.unpack_from(self.data, at)

    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise _cut_off(self.data)
        self.at = at + 1
        return self.data[at]

    def string(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise _cut_off(self.data)
        found = self.data[self.at : end]
        self.at = end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise MalformedMessageError(
                f"the database has sent the name {found!r}, which is not UTF-8; names must be ASCII if the encoding of the"
                " database is SQL_ASCII"
            ) from None

    def content(self) -> bytes:
        (size,) = self.take(_int32)
        at = self.at
        self.at = at + size
        if self.at > len(self.data):
            raise _cut_off(self.data)
        return self.data[at : self.at]

    def cells(self) -> Cells:
        data = self.data
        (count,) = self.take(_int16)
        at, size = self.at, len(data)
        if count > size - at:
            raise _cut_off(data)
        found: Cells = []
        for _ in range(count):
            if at >= size:
                raise _cut_off(data)
            kind = data[at]
            at += 1
            if kind == _TEXT:
                first = at + 4
                if first > size:
                    raise _cut_off(data)
                at = first + int.from_bytes(data[at:first], "big")
                if at > size:
                    raise _cut_off(data)
                found.append(data[first:at])
            elif kind == _NULL:
                found.append(None)
            elif kind == _UNCHANGED:
                found.append(UNCHANGED)
            elif kind == _BINARY:
                raise MalformedMessageError(
                    "the database has sent a value in binary format, which was not asked for; start pgoutput without `binary`"
                )
            else:
                raise _wrong_byte(data, at - 1)
        self.at = at
        return found

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedMessageError(
                f"a message of logical replication of type {self.data[:1]!r} has {len(self.data) - self.at} bytes after its end"
            )


def _decode_begin(body: _Body) -> Begin:
    final_lsn, time, xid = body.take(_begin)
    return Begin(final_lsn, time + POSTGRES_EPOCH_US, xid)


def _decode_commit(body: _Body) -> Commit:
    _, commit_lsn, end_lsn, time = body.take(_commit)
    return Commit(commit_lsn, end_lsn, time + POSTGRES_EPOCH_US)


def _decode_relation(body: _Body) -> RelationMessage:
    (oid,) = body.take(_int32)
    schema, name = body.string(), body.string()
    identity = _IDENTITIES.get(body.byte())
    if identity is None:
        raise _wrong_byte(body.data, body.at - 1)
    (count,) = body.take(_int16)
    columns = []
    for _ in range(count):
        flags, column = body.byte(), body.string()
        (type_oid,) = body.take(_int32)
        (modifier,) = body.take(_signed32)
        columns.append(MessageColumn(column, type_oid, modifier, bool(flags & 1)))
    # The schema pg_catalog is sent as an empty text.
    return RelationMessage(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _decode_type(body: _Body) -> RelationType:
    (oid,) = body.take(_int32)
    return RelationType(oid, body.string() or "pg_catalog", body.string())


def _decode_origin(body: _Body) -> Origin:
    (lsn,) = body.take(Struct(">Q"))
    return Origin(lsn, body.string())


def _decode_insert(body: _Body) -> Insert:
    (oid,) = body.take(_int32)
    if body.byte() != _NEW:
        raise _wrong_byte(body.data, body.at - 1)
    return Insert(oid, body.cells())


def _decode_update(body: _Body) -> Update:
    (oid,) = body.take(_int32)
    kind = body.byte()
    old_kind: OldKind | None = None
    old: Cells = []
    if kind in (_KEY, _OLD):
        old_kind = "K" if kind == _KEY else "O"
        old = body.cells()
        kind = body.byte()
    if kind != _NEW:
        raise _wrong_byte(body.data, body.at - 1)
    return Update(oid, old_kind, old, body.cells())


def _decode_delete(body: _Body) -> Delete:
    (oid,) = body.take(_int32)
    kind = body.byte()
    if kind not in (_KEY, _OLD):
        raise _wrong_byte(body.data, body.at - 1)
    return Delete(oid, "K" if kind == _KEY else "O", body.cells())


def _decode_truncate(body: _Body) -> Truncate:
    (count,) = body.take(_int32)
    options = body.byte()
    if count * 4 > len(body.data) - body.at:
        raise _cut_off(body.data)
    return Truncate(body.take(Struct(f">{count}I")), options)


def _decode_message(body: _Body) -> LogicalMessage:
    flags, lsn = body.take(Struct(">BQ"))
    return LogicalMessage(bool(flags & 1), lsn, body.string(), body.content())


def _decode_stream_start(body: _Body) -> StreamStart:
    (xid,) = body.take(_int32)
    return StreamStart(xid, body.byte() == 1)


def _decode_stream_stop(body: _Body) -> StreamStop:
    return StreamStop()


def _decode_stream_commit(body: _Body) -> StreamCommit:
    xid, _, commit_lsn, end_lsn, time = body.take(_stream_commit)
    return StreamCommit(xid, commit_lsn, end_lsn, time + POSTGRES_EPOCH_US)


def _decode_stream_abort(body: _Body) -> StreamAbort:
    xid, subxid = body.take(_two_xids)
    return StreamAbort(xid, subxid)


_DECODERS: dict[int, Callable[[_Body], Message]] = {
    ord("B"): _decode_begin,
    ord("C"): _decode_commit,
    ord("R"): _decode_relation,
    ord("Y"): _decode_type,
    ord("O"): _decode_origin,
    ord("I"): _decode_insert,
    ord("U"): _decode_update,
    ord("D"): _decode_delete,
    ord("T"): _decode_truncate,
    ord("M"): _decode_message,
    ord("S"): _decode_stream_start,
    ord("E"): _decode_stream_stop,
    ord("c"): _decode_stream_commit,
    ord("A"): _decode_stream_abort,
}


def _cut_off(data: bytes) -> MalformedMessageError:
    return MalformedMessageError(
        f"a message of logical replication of type {data[:1]!r} is cut off: its lengths exceed its {len(data)} bytes"
    )


def _wrong_byte(data: bytes, at: int) -> MalformedMessageError:
    return MalformedMessageError(
        f"a message of logical replication of type {data[:1]!r} has the unexpected byte {data[at : at + 1]!r} at {at}"
    )
