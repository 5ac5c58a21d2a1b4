"""What the server and the process that runs DuckDB say to each other: messages over a socket, one answer for each question.

A message has a head, by msgspec, and may carry bytes behind it, which are one Arrow batch.
"""

import socket
from collections.abc import Sequence
from struct import Struct
from typing import Literal

import msgspec

from tailrace.model.table import ColumnType

_LENGTHS = Struct(">IQ")

Reason = Literal["memory", "unsupported", "interrupted", "other"]

QUERY_NUMBER = Struct(">Q")
"""What the server writes into a pipe to interrupt a query of a worker: its number among those that the worker was asked."""


class Ask(msgspec.Struct, frozen=True, tag=True):
    """To the worker: what are these constants?"""

    question: str


class Run(msgspec.Struct, frozen=True, tag=True):
    """To the worker: run this query over relations of these schemas."""

    text: str
    schemas: dict[str, bytes]


class Piece(msgspec.Struct, frozen=True, tag=True):
    """To the worker: the next batch, which it carries, or that there is none."""

    is_last: bool = False
    has_failed: bool = False


class Known(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the constants."""

    values: Sequence[int | None]


class Pull(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the next batch of this scan of a relation, please."""

    relation: str
    scan: int


class AnswerColumn(msgspec.Struct, frozen=True):
    name: str
    type: ColumnType
    form: str
    """How Arrow's values become ours; see `answer.py`."""


class Columns(msgspec.Struct, frozen=True, tag=True):
    """From the worker: what the answer looks like."""

    columns: Sequence[AnswerColumn]
    schema: bytes


class Rows(msgspec.Struct, frozen=True, tag=True):
    """From the worker: some rows of the answer, which it carries."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """From the worker: that was all, and it is ready for a query."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """From the worker: the query can't be run."""

    reason: Reason
    message: str
    is_ready: bool
    """Whether the worker can take another query."""


Message = Ask | Run | Piece | Known | Pull | Columns | Rows | Done | Refused


class Channel:
    """One end. Raises `EOFError` when the other has gone."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Message)

    def send(self, message: Message, carried: bytes | memoryview = b"") -> None:
        head = self._encoder.encode(message)
        try:
            self._socket.sendall(_LENGTHS.pack(len(head), len(carried)) + head)
            if carried:
                self._socket.sendall(carried)
        except OSError as error:
            raise EOFError from error

    def receive(self) -> tuple[Message, bytearray]:
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
