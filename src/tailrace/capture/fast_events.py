"""Fast path of `RowEventEncoder`: the changes of a table become the records of batches by machine code.

It takes the tables all of whose columns have types with a simple text, and of these the changes that it can encode: no value
without JSON, no column that was not sent with a new row, no update of the key. All others go the general way, one by one, in
their order and into the same batches. `tests/property/test_fast_events.py` holds both equal to the byte.

The code is compiled once on a machine, by a process of its own (`wire/machine_code.py`). Until it is there, everything goes the
general way.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, misc"
import ctypes
import logging
import subprocess
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Protocol

from tailrace.capture import event_loops as loops
from tailrace.model.route import ChangeKind
from tailrace.model.table import ColumnKind, Table
from tailrace.wire import machine_code
from tailrace.wire.batch import HEADER_BYTES, assemble_batch
from tailrace.wire.machine_code import MachineCode
from tailrace.wire.records import encode_headers
from tailrace.wire.varints import encode_varint

LEAST_CHANGES = 4
"""Fewer take longer than by the general path."""

_OPS: tuple[ChangeKind, ...] = ("insert", "update", "delete")
_KINDS: dict[ColumnKind, int] = {
    "smallint": loops.INTEGER,
    "integer": loops.INTEGER,
    "bigint": loops.INTEGER,
    "boolean": loops.BOOLEAN,
    "text": loops.TEXT,
    "char": loops.TEXT,
    "decimal": loops.DECIMAL,
    "real": loops.FLOAT,
    "double": loops.FLOAT,
    "date": loops.DATE,
    "time": loops.TIME,
    "timestamp": loops.TIMESTAMP,
    "uuid": loops.QUOTED,
    "json": loops.JSON,
    "bytes": loops.BYTES,
}
_MOST_INPUT = 64 << 10
"""A change that has more bytes goes the general way, which bounds the room for an event."""
_GROWTH = 18
"""A byte of a key is in an event up to three times, each as up to six bytes."""
_CELL_BYTES = 40
"""What a cell takes at most in an event besides its name and its growing bytes."""
_CODE = MachineCode("change_events", "tailrace.capture.fast_events", (loops.__file__, __file__, machine_code.__file__))
_PARAMETERS = (ctypes.c_void_p,) * 12
_log = logging.getLogger(__name__)


class CommitMoment(Protocol):
    """The `CommitInfo` of changes."""

    @property
    def commit_lsn(self) -> int: ...
    @property
    def timestamp(self) -> int: ...


Kernel = Callable[..., int]
BatchFields = tuple[bytearray, int]
"""A batch and how many records it has."""
RecordFields = tuple[int, bytes]
"""A record that the general path has encoded: its timestamp, and its key, value and headers."""


class FastEventEncoder:
    """Encodes the changes of one table. May be used by several threads."""

    def __init__(self, table: Table, change_bytes: int, names: Sequence[bytes], key_at: Sequence[int], version: bytes) -> None:
        """`names` are those of the columns as JSON with a colon; `version` is the member of events with that of the schema."""
        texts = bytearray(_tables())

        def put(text: bytes) -> tuple[int, int]:
            texts.extend(text)
            return len(texts) - len(text), len(text)

        shape = [len(names), len(key_at)]
        first = [encode_headers((("source_table", table.name.encode()), ("op", op.encode())))[1:] for op in _OPS]
        behind_key = (b',"old":null,"new":', b',"old":', b',"old":')
        behind_old = (b"", b',"new":', b',"new":null')
        for place, op in enumerate(_OPS):
            shape += put(b'{"op":"%b"%b,"key":' % (op.encode(), version))
            shape += put(behind_key[place])
            shape += put(behind_old[place])
            shape += put(first[place])
        for place, (column, name) in enumerate(zip(table.columns, names, strict=True)):
            shape += (_KINDS[column.type.kind], *put(name), place in key_at)
        self._shape = array("q", [*shape, *key_at])
        self._texts = bytes(texts)
        self._inserted = 1 + len(first[0])
        self._columns = len(names)
        self._change_bytes = change_bytes
        self._value_bytes = 3 * (len(texts) + _CELL_BYTES * len(names))
        """Room for an event without what its cells hold."""

    def encode(
        self,
        kernel: Kernel,
        changes: Sequence[bytes],
        commits: Iterable[tuple[int, CommitMoment, bytes]],
        general: Callable[[int], Iterable[RecordFields]],
        most_bytes: int,
        most_records: int,
        *,
        is_lines: bool,
    ) -> Iterator[BatchFields]:
        """Yield batches as `RowEventEncoder.encode_events` does. `changes` are messages of `pgoutput`, or lines of COPY.

        `commits` has the place behind the last change of each commit, and its headers with an insert. `general` encodes the
        change at a place.
        """
        # Behind lines there is room for the cells of one without their escapes.
        data = bytearray().join((*changes, bytes(_MOST_INPUT))) if is_lines else b"".join(changes)
        ends = array("q", accumulate(map(len, changes), initial=0))
        commit_texts, commit_fields = self._commits(commits)
        out = bytearray(most_bytes)
        value = ctypes.create_string_buffer(self._value_bytes + _GROWTH * min(len(data), _MOST_INPUT))
        cells = array("q", bytes(32 * self._columns))
        state = array("q", bytes(8 * loops.STATES))
        state[loops.COUNT] = len(changes)
        state[loops.FILLED] = HEADER_BYTES
        state[loops.MOST_BYTES] = most_bytes
        state[loops.MOST_RECORDS] = most_records
        state[loops.CHANGE_BYTES] = self._change_bytes
        state[loops.MOST_INPUT] = _MOST_INPUT
        state[loops.SPARE] = ends[-1] if is_lines else 0
        batch = _Batch(out, state)
        kept = (ctypes.c_char * len(data)).from_buffer(data) if isinstance(data, bytearray) else data
        result = array("q", [0])
        arguments = (
            result.buffer_info()[0],
            None,
            kept,
            ends.buffer_info()[0],
            commit_fields.buffer_info()[0],
            commit_texts,
            self._shape.buffer_info()[0],
            self._texts,
            cells.buffer_info()[0],
            value,
            (ctypes.c_char * most_bytes).from_buffer(out),
            state.buffer_info()[0],
        )
        while True:
            kernel(*arguments)
            if result[0] == loops.DONE:
                break
            if result[0] == loops.FULL:
                yield batch.take()
                continue
            place = state[loops.NEXT]
            for record in general(place):
                yield from batch.add(record)
            state[loops.NEXT] = place + 1
        if state[loops.RECORDS]:
            yield batch.take()

    def _commits(self, commits: Iterable[tuple[int, CommitMoment, bytes]]) -> tuple[bytes, "array[int]"]:
        texts: list[bytes] = []
        fields = array("q")
        at = 0
        for stop, commit, headers in commits:
            timestamp = commit.timestamp
            end = b',"ts":%d,"tx":"%d"}' % (timestamp, commit.commit_lsn)
            # The number of headers comes first, and then those that depend on the operation.
            counted = headers[:1] + headers[self._inserted :]
            texts += (end, counted)
            fields.extend((stop, timestamp, at, len(end), at + len(end), len(counted)))
            at += len(end) + len(counted)
        return b"".join(texts), fields


class _Batch:
    """The batch that is being filled, by machine code and by the general path."""

    def __init__(self, out: bytearray, state: "array[int]") -> None:
        self._out = out
        self._state = state

    def add(self, record: RecordFields) -> Iterator[BatchFields]:
        """Add a record. Yield the batch before it if it does not fit, and that of the record if it is larger than a batch."""
        state = self._state
        timestamp, fields = record
        if state[loops.RECORDS]:
            whole = self._framed(timestamp, fields)
            if state[loops.FILLED] + len(whole) > len(self._out) or state[loops.RECORDS] >= state[loops.MOST_RECORDS]:
                yield self.take()
        if not state[loops.RECORDS]:
            state[loops.FIRST] = state[loops.NEWEST] = timestamp
            whole = self._framed(timestamp, fields)
            if HEADER_BYTES + len(whole) > len(self._out):
                yield assemble_batch(whole, 1, timestamp, timestamp), 1
                return
        filled = state[loops.FILLED]
        self._out[filled : filled + len(whole)] = whole
        state[loops.FILLED] = filled + len(whole)
        state[loops.RECORDS] += 1
        state[loops.NEWEST] = max(state[loops.NEWEST], timestamp)

    def take(self) -> BatchFields:
        """Return the batch, and begin another one."""
        state = self._state
        records = state[loops.RECORDS]
        body = memoryview(self._out)[HEADER_BYTES : state[loops.FILLED]]
        batch = assemble_batch(body, records, state[loops.FIRST], state[loops.NEWEST])
        state[loops.FILLED] = HEADER_BYTES
        state[loops.RECORDS] = 0
        return batch, records

    def _framed(self, timestamp: int, fields: bytes) -> bytes:
        later, records = timestamp - self._state[loops.FIRST], self._state[loops.RECORDS]
        body = b"".join((b"\0", encode_varint(later), encode_varint(records), fields))
        return encode_varint(len(body)) + body


def is_fast(table: Table) -> bool:
    """Return whether the machine code knows the types of all columns."""
    return bool(table.columns) and all(column.type.kind in _KINDS for column in table.columns)


class _KernelLoader:
    """Loads the machine code, or lets it be compiled while the general path does the work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_started = False
        self.kernel: Kernel | None = None

    def start(self) -> None:
        with self._lock:
            if self._is_started:
                return
            self._is_started = True
            address = _CODE.load()
            if address is None:
                threading.Thread(target=self._compile, name="tailrace-compile", daemon=True).start()
            else:
                self.kernel = _kernel_at(address)

    def _compile(self) -> None:
        try:
            self.kernel = _kernel_at(_CODE.compile())
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("changes are encoded without machine code, which can't be compiled: %s", error)


@cache
def _loader() -> _KernelLoader:
    return _KernelLoader()


def ready_kernel() -> Kernel | None:
    """Return the machine code if it is there. The first call lets it be compiled if it is not on file."""
    loader = _loader()
    if loader.kernel is None:
        loader.start()
    return loader.kernel


def await_kernel() -> Kernel:
    """Return the machine code, after it was compiled if it is not on file."""
    loader = _loader()
    if loader.kernel is None:
        loader.kernel = _kernel_at(_CODE.load() or _CODE.compile())
    return loader.kernel


def _kernel_at(address: int) -> Kernel:
    return ctypes.CFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(address)


def _tables() -> bytes:
    """Return the tables with which texts begin."""
    escapes = bytearray([loops.HEX_ESCAPE] * 32 + [loops.PLAIN] * 96 + [loops.NOT_ASCII] * 128)
    for byte, escape in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
        escapes[byte] = escape
    copied = bytearray(range(256))
    for byte, escaped in zip(b"bfnrtv", b"\b\f\n\r\t\v", strict=True):
        copied[byte] = escaped
    digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return bytes(escapes + b"0123456789abcdef" + copied + digits + b"000000" + b"==")


def _compile() -> bytes:
    import numba
    from numba import int64, types, uint8

    for function in loops.COMPILED:
        setattr(loops, function.__name__, numba.njit(forceinline=True)(function))
    bytes_, longs = types.CPointer(uint8), types.CPointer(int64)
    signature = int64(bytes_, longs, longs, bytes_, longs, bytes_, longs, bytes_, bytes_, longs)
    return machine_code.machine_code(numba.cfunc(signature)(loops.encode_changes))


if __name__ == "__main__":
    _CODE.save(_compile())
