"""What the server and the process that runs DuckDB say to each other: messages over a socket, one answer for each question.

A message has a head, by msgspec, and may carry bytes behind it, which are one Arrow batch.
"""

import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from tailrace.model.table import ColumnKind, ColumnType

_LENGTHS = Struct(">IQ")

FailureReason = Literal["memory", "unsupported", "interrupted", "other"]

QUERY_NUMBER = Struct(">Q")
"""What the server writes into a pipe to interrupt a query of a worker: its number among those that the worker was asked."""


class EvaluateConstants(msgspec.Struct, frozen=True, tag=True):
    """To the worker: what are these constants?"""

    question: str


class RunQuery(msgspec.Struct, frozen=True, tag=True):
    """To the worker: run this query over relations of these schemas."""

    text: str
    schemas: dict[str, bytes]


class RelationBatch(msgspec.Struct, frozen=True, tag=True):
    """To the worker: the next batch, which it carries, or that there is none."""

    is_last: bool = False
    has_failed: bool = False


class ConstantValues(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the constants."""

    values: Sequence[int | None]


class NextBatch(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the next batch of this scan of a relation, please."""

    relation: str
    scan: int


class AnswerColumn(msgspec.Struct, frozen=True):
    name: str
    type: ColumnType
    form: str
    """How Arrow's values become ours; see `answer.py`."""


class ResultSchema(msgspec.Struct, frozen=True, tag=True):
    """From the worker: what the answer looks like."""

    columns: Sequence[AnswerColumn]
    schema: bytes


class ResultBatch(msgspec.Struct, frozen=True, tag=True):
    """From the worker: some rows of the answer, which it carries."""


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """From the worker: that was all, and it is ready for a query."""


class QueryFailed(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the query can't be run."""

    reason: FailureReason
    message: str
    is_ready: bool
    """Whether the worker can take another query."""


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
    """One end. Raises `EOFError` when the other has gone."""

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
        """All rows. May be called again, and from any thread."""
        ...


class RelationStream:
    """A relation on its way into DuckDB."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._relation.schema, self._relation.batches())
        return reader.__arrow_c_stream__(requested_schema)


AS_IT_IS, JSON, LIST, NESTED, TEXT, TIMESTAMP, UUID_TEXT, WHOLE = (
    "as_it_is",
    "json",
    "list",
    "nested",
    "text",
    "timestamp",
    "uuid",
    "whole",
)
"""That of a list goes on with the form of what is in it."""

_KINDS: dict[str, ColumnKind] = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "utinyint": "smallint",
    "smallint": "smallint",
    "usmallint": "integer",
    "integer": "integer",
    "uinteger": "bigint",
    "bigint": "bigint",
    "ubigint": "bigint",
    "hugeint": "bigint",
    "uhugeint": "bigint",
    "float": "double",
    "double": "double",
    "blob": "bytes",
    "date": "date",
    "uuid": "uuid",
    "json": "json",
    "struct": "json",
    "map": "json",
}


def column_type(kind: Any) -> ColumnType:
    """Of one of DuckDB's types."""
    if str(kind) == "JSON":
        return ColumnType("json")
    name = kind.id
    if name == "decimal":
        digits = dict(kind.children)
        return ColumnType("decimal", digits["precision"], digits["scale"])
    if name in ("list", "array"):
        return ColumnType("list", element=column_type(dict(kind.children)["child"]))
    if name.startswith("timestamp"):
        return ColumnType("timestamp")
    return ColumnType(_KINDS.get(name, "text"))


def form_of(kind: Any) -> str:
    """Of the values of one of DuckDB's types."""
    name = kind.id
    if str(kind) == "JSON":
        return JSON
    if name in ("list", "array"):
        return f"{LIST} {form_of(dict(kind.children)['child'])}"
    if name.startswith("timestamp"):
        return TIMESTAMP
    return _FORMS.get(name, AS_IT_IS)


_FORMS = {
    "hugeint": WHOLE,
    "uhugeint": WHOLE,
    "uuid": UUID_TEXT,
    "struct": NESTED,
    "map": NESTED,
    "interval": TEXT,
    "time": TEXT,
    "time with time zone": TEXT,
    "bit": TEXT,
}
