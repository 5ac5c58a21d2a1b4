"""The protocol between the server and a process that runs DuckDB: messages over a socket, one response for each request.

A message is encoded by msgspec and may be followed by bytes, which are one Arrow batch. Relations are streams of Arrow batches
that start anew for each scan. DuckDB requests the next batch when it needs one, from a thread of its own, so nothing is read
that is not needed, and no more is in memory than what it works on.
"""

import select
import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

_LENGTHS = Struct(">IQ")

FailureReason = Literal["memory", "interrupted", "other"]

QUERY_NUMBER = Struct(">Q")
"""The message in the pipe that interrupts a query: its number among the queries that the worker was sent."""


class EvaluateConstants(msgspec.Struct, frozen=True, tag=True):
    """To the worker: evaluate these constants."""

    question: str
    count: int


class ColumnarFile(msgspec.Struct, frozen=True):
    """A columnar copy of a table, of whose rows a query reads those whose keys have not changed."""

    path: str
    columns: Sequence[str]
    key: Sequence[str]
    """The columns of the primary key."""
    changed: bytes
    """The keys that have changed, as a stream of Arrow; nothing if there are none."""


class RunQuery(msgspec.Struct, frozen=True, tag=True):
    """To the worker: run this query over relations with these schemas."""

    text: str
    schemas: dict[str, bytes]
    copies: dict[str, ColumnarFile] = {}
    """The files that have the rows of relations; what the server has of these relations are rows that have changed."""


class RelationBatch(msgspec.Struct, frozen=True, tag=True):
    """To the worker: the next batch of a relation, which follows, or the end of it, or both."""

    is_last: bool = False
    has_failed: bool = False


class ConstantValues(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the values of the constants."""

    values: Sequence[int | None]


class NextBatch(msgspec.Struct, frozen=True, tag=True):
    """From the worker: send the next batch of this scan of a relation."""

    relation: str
    scan: int


class ResultSchema(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the columns of the result, as Arrow describes them."""

    schema: bytes


class ResultBatch(msgspec.Struct, frozen=True, tag=True):
    """From the worker: some rows of the result, which follow."""


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the query is complete, and the worker is ready for the next one."""


class QueryFailed(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the query failed."""

    reason: FailureReason
    message: str
    sqlstate: str
    is_ready: bool
    """Whether the worker can run another query."""


WorkerMessage = (
    EvaluateConstants
    | RunQuery
    | RelationBatch
    | ConstantValues
    | NextBatch
    | ResultSchema
    | ResultBatch
    | WorkerReady
    | QueryFailed
)


class WorkerChannel:
    """One end of the connection. Raises `EOFError` when the other end has gone."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(WorkerMessage)

    def send(self, message: WorkerMessage, carried: bytes | memoryview = b"") -> None:
        head = self._encoder.encode(message)
        try:
            self._socket.sendall(_LENGTHS.pack(len(head), len(carried)) + head)
            if carried:
                self._socket.sendall(carried)
        except OSError as error:
            raise EOFError from error

    def receive(self) -> tuple[WorkerMessage, bytearray]:
        head, carried = _LENGTHS.unpack(self._read(_LENGTHS.size))
        return self._decoder.decode(self._read(head)), self._read(carried)

    def has_message(self, seconds: float) -> bool:
        """Wait for so long, and return whether the other end has sent something or gone."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        found = bytearray(size)
        view = memoryview(found)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError as error:
                raise EOFError from error
            if not count:
                raise EOFError
            view = view[count:]
        return found


class Relation(Protocol):
    schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return all rows. May be called repeatedly and from any thread."""
        ...


class RelationStream:
    """A relation in the form that DuckDB reads."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._relation.schema, self._relation.batches())
        return reader.__arrow_c_stream__(requested_schema)
