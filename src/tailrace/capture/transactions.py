"""Assembles the messages of a replication stream to whole transactions.

A transaction comes at once when it is committed, or in pieces while it is still open, if it is large (*streamed*). Several
streamed ones may be open, and savepoints in them may be rolled back. They wait in temporary files until their commit arrives,
so memory stays flat. Row messages are not decoded here.
"""

import tempfile
from collections.abc import Iterator
from struct import Struct
from typing import IO, NamedTuple

from tailrace.capture.change_events import CommitInfo
from tailrace.capture.pgoutput import (
    Begin,
    Commit,
    StreamAbort,
    StreamCommit,
    StreamStart,
    decode,
    without_xid,
    xid_in_stream,
)
from tailrace.model.errors import MalformedMessageError

_ENTRY = Struct(">II")
_TAG = 0
_BEGIN, _COMMIT, _STREAM_START, _STREAM_STOP, _STREAM_COMMIT, _STREAM_ABORT = map(ord, "BCSEcA")
_ROWS = frozenset(b"RIUDTM")
"""Relations, changes of rows, truncates and messages. Types and origins are not used."""
_MEMORY_BYTES = 4 << 20
_READ_BYTES = 1 << 20


class CapturedTransaction(NamedTuple):
    """A committed transaction: its messages in order, in the form that they have outside of a stream."""

    at: CommitInfo
    end_lsn: int
    """The position behind it."""
    messages: "list[bytes] | SpooledMessages"
    size: int


class TransactionAssembler:
    """Takes messages in the order of the stream."""

    def __init__(self) -> None:
        self._begun: Begin | None = None
        self._messages: list[bytes] | SpooledMessages = []
        self._size = 0
        self._streams: dict[int, SpooledMessages] = {}
        self._streamed: SpooledMessages | None = None

    @property
    def is_between(self) -> bool:
        """Whether the next message begins something new. Streamed transactions may be open."""
        return self._begun is None and self._streamed is None

    @property
    def spooled_bytes(self) -> int:
        return sum(spool.size for spool in self._streams.values())

    def add(self, message: bytes) -> CapturedTransaction | None:
        """Take a message. Return the transaction that it commits."""
        tag = message[_TAG]
        if tag in _ROWS:
            self._add_row(message)
        elif tag == _BEGIN:
            begun = decode(message)
            self._begun = begun if isinstance(begun, Begin) else None
            self._messages, self._size = [], 0
        elif tag == _COMMIT:
            return self._commit(message)
        elif tag == _STREAM_START:
            start = decode(message)
            if isinstance(start, StreamStart):
                self._streamed = self._streams.setdefault(start.xid, SpooledMessages())
        elif tag == _STREAM_STOP:
            self._streamed = None
        elif tag == _STREAM_COMMIT:
            return self._commit_stream(message)
        elif tag == _STREAM_ABORT:
            self._abort(message)
        return None

    def close(self) -> None:
        for spool in self._streams.values():
            spool.close()
        if isinstance(self._messages, SpooledMessages):
            self._messages.close()

    def _add_row(self, message: bytes) -> None:
        if self._streamed is not None:
            self._streamed.add(without_xid(message), xid_in_stream(message))
        elif self._begun is not None:
            self._size += len(message)
            if isinstance(self._messages, list) and self._size > _MEMORY_BYTES:
                spool = SpooledMessages()
                for earlier in self._messages:
                    spool.add(earlier)
                self._messages = spool
            if isinstance(self._messages, list):
                self._messages.append(message)
            else:
                self._messages.add(message)
        # Messages outside of transactions are not part of the promise.

    def _commit(self, message: bytes) -> CapturedTransaction:
        commit = decode(message)
        begun, self._begun = self._begun, None
        if begun is None or not isinstance(commit, Commit):
            raise MalformedMessageError("the database committed a transaction that it did not begin")
        at = CommitInfo(begun.xid, commit.commit_lsn, commit.commit_time_us)
        messages, self._messages = self._messages, []
        return CapturedTransaction(at, commit.end_lsn, messages, self._size)

    def _commit_stream(self, message: bytes) -> CapturedTransaction:
        commit = decode(message)
        spool = self._streams.pop(commit.xid, None) if isinstance(commit, StreamCommit) else None
        if spool is None or not isinstance(commit, StreamCommit):
            raise MalformedMessageError("the database committed a streamed transaction that it did not begin")
        at = CommitInfo(commit.xid, commit.commit_lsn, commit.commit_time_us)
        return CapturedTransaction(at, commit.end_lsn, spool, spool.size)

    def _abort(self, message: bytes) -> None:
        abort = decode(message)
        if not isinstance(abort, StreamAbort):
            return
        if abort.xid == abort.subxid:
            spool = self._streams.pop(abort.xid, None)
            if spool is not None:
                spool.close()
        elif abort.xid in self._streams:
            self._streams[abort.xid].abort(abort.subxid)


class SpooledMessages:
    """Messages of one transaction, in a temporary file if they are many, without rows of savepoints that were rolled back."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._waiting = bytearray()
        self._aborted: set[int] = set()
        self.size = 0

    def add(self, message: bytes, xid: int = 0) -> None:
        self._waiting += _ENTRY.pack(xid, len(message))
        self._waiting += message
        self.size += len(message)
        if len(self._waiting) > _MEMORY_BYTES:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="tailrace-capture-")  # noqa: SIM115
            self._file.write(self._waiting)
            self._waiting.clear()

    @property
    def is_large(self) -> bool:
        """Whether a part of it is in a file."""
        return self._file is not None

    def abort(self, xid: int) -> None:
        """Leave out the rows of a savepoint. Relations stay, because the database does not send them again."""
        self._aborted.add(xid)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the messages. Only a part of the file is in memory."""
        for part in self._parts():
            at = 0
            while at < len(part):
                xid, size = _ENTRY.unpack_from(part, at)
                at += _ENTRY.size
                message = part[at : at + size]
                at += size
                if xid not in self._aborted or message[_TAG] == ord("R"):
                    yield message

    def _parts(self) -> Iterator[bytes]:
        """Yield the file in parts that end with a message."""
        if self._file is not None:
            self._file.flush()
            self._file.seek(0)
            rest = b""
            while read := self._file.read(_READ_BYTES):
                rest += read
                whole = _whole_entries(rest)
                if whole:
                    yield rest[:whole]
                    rest = rest[whole:]
            self._file.seek(0, 2)
        yield bytes(self._waiting)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _whole_entries(data: bytes) -> int:
    """Return how many bytes are whole entries."""
    at = 0
    while len(data) - at >= _ENTRY.size:
        end = at + _ENTRY.size + _ENTRY.unpack_from(data, at)[1]
        if end > len(data):
            break
        at = end
    return at
