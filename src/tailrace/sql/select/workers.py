"""Processes that run DuckDB for this server, each for one query at a time. See `worker.py` for why."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from tailrace.model.errors import QueryLimitError, SqlError, TailraceError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.results import Result, ResultColumn, ResultStream
from tailrace.sql.select.worker_protocol import (
    JSON,
    LIST,
    NESTED,
    QUERY_NUMBER,
    TEXT,
    TIMESTAMP,
    UUID_TEXT,
    WHOLE,
    AnswerColumn,
    ConstantValues,
    EvaluateConstants,
    NextBatch,
    QueryFailed,
    Relation,
    RelationBatch,
    ResultBatch,
    ResultSchema,
    RunQuery,
    WorkerChannel,
    WorkerMessage,
    WorkerReady,
)

_WORKER = "tailrace.sql.select.worker"


class WorkerProcess:
    """One process. All methods but `stop` are called by the thread that has it."""

    def __init__(self, limits: Limits, decoding: threading.Lock) -> None:
        """`decoding` is taken while rows for the query are decoded: a few records may become many MiB."""
        self._limits = limits
        self._decoding = decoding
        self._scans: dict[int, Iterator[pa.RecordBatch]] = {}
        self._failure: TailraceError | None = None
        self._asked = 0
        ours, theirs = socket.socketpair()
        interrupts, self._interrupts = os.pipe()
        os.set_blocking(self._interrupts, False)
        with theirs, os.fdopen(interrupts):
            ends = [theirs.fileno(), interrupts]
            command = [sys.executable, "-m", _WORKER, *map(str, (*ends, limits.query_bytes, limits.query_seconds))]
            # Arrow's own allocator takes a gigabyte at once, which the worker's bound on memory does not allow.
            environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, pass_fds=ends, env=environment
            )
        self._channel = WorkerChannel(ours)
        self._is_ready = False
        self.is_fit = False
        """Whether it can take another query."""

    def wait(self) -> None:
        """Until it can take a query."""
        while not self._is_ready:
            message, _ = self._receive()
            self._is_ready = isinstance(message, WorkerReady)
        self._failure = None

    def constants(self, question: str) -> Sequence[int | None]:
        """One row of numbers; asked before `run`."""
        self._ask(EvaluateConstants(question))
        answer, _ = self._receive()
        if not isinstance(answer, ConstantValues):
            raise self._unexpected(answer)
        return answer.values

    def run(
        self,
        text: str,
        relations: Mapping[str, Relation],
        out: ResultStream | None = None,
        on_rows: Callable[[int], None] = lambda _: None,
    ) -> Result:
        """All rows of the query, up to the limits, or handed over as they come. Relations are read as the query wants them.

        `on_rows` is told of the bytes of rows that are kept before they are made, and may raise.
        """
        self._ask(RunQuery(text, {name: relation.schema.serialize().to_pybytes() for name, relation in relations.items()}))
        messages = self._served(relations)
        first, _ = next(messages)
        if not isinstance(first, ResultSchema):
            raise self._unexpected(first)
        schema = pa.ipc.read_schema(pa.py_buffer(first.schema))
        batches = (pa.ipc.read_record_batch(pa.py_buffer(carried), schema) for _, carried in messages)
        if out is not None:
            return stream_result(first.columns, batches, self._limits, out)
        return read_result(first.columns, batches, self._limits, on_rows)

    def end_scans(self) -> None:
        """Let go of what relations have read."""
        self._scans = {}

    def stop(self) -> None:
        """Make the query fail now. May be called from any thread, also when it has ended."""
        self._process.kill()

    def interrupt(self) -> None:
        """Make the query fail soon, and the worker ready for another one. May be called from any thread."""
        with suppress(OSError):
            os.write(self._interrupts, QUERY_NUMBER.pack(self._asked))

    def close(self) -> None:
        self._channel.close()
        os.close(self._interrupts)
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _served(self, relations: Mapping[str, Relation]) -> Iterator[tuple[WorkerMessage, bytearray]]:
        """What the worker answers; what it asks for meanwhile, it gets."""
        while True:
            message, carried = self._receive()
            if isinstance(message, NextBatch):
                with self._decoding:
                    self._hand_over(message, relations)
            elif isinstance(message, WorkerReady):
                self._is_ready = self.is_fit = True
                return
            elif isinstance(message, ResultSchema | ResultBatch):
                yield message, carried
            else:
                raise self._unexpected(message)

    def _hand_over(self, asked: NextBatch, relations: Mapping[str, Relation]) -> None:
        if asked.scan not in self._scans:
            self._scans[asked.scan] = relations[asked.relation].batches()
        try:
            batch = next(self._scans[asked.scan], None)
        except TailraceError as error:
            self._failure = error
            self._send(RelationBatch(has_failed=True))
            return
        if batch is None:
            self._send(RelationBatch(is_last=True))
        else:
            piece = memoryview(batch.serialize())
            del batch
            self._send(RelationBatch(), piece)

    def _ask(self, message: EvaluateConstants | RunQuery) -> None:
        self._is_ready = self.is_fit = False
        self._asked += isinstance(message, RunQuery)
        self._send(message)

    def _send(self, message: WorkerMessage, carried: bytes | memoryview = b"") -> None:
        try:
            self._channel.send(message, carried)
        except EOFError as error:
            raise self._gone() from error

    def _receive(self) -> tuple[WorkerMessage, bytearray]:
        try:
            return self._channel.receive()
        except EOFError as error:
            raise self._gone() from error

    def _unexpected(self, message: WorkerMessage) -> TailraceError:
        if not isinstance(message, QueryFailed):
            return SqlError(f"the query was answered by {type(message).__name__}, which makes no sense")
        self.is_fit = message.is_ready
        if self._failure is not None:
            return self._failure
        if message.reason in ("memory", "interrupted"):
            return QueryLimitError(message.message)
        return (UnsupportedSqlError if message.reason == "unsupported" else SqlError)(message.message)

    def _gone(self) -> TailraceError:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return QueryLimitError(
            f"the process that ran the query ended ({how}), most likely because the query took too much memory (query_bytes is"
            f" {self._limits.query_bytes})"
        )


class WorkerPool:
    """Processes that wait for a query. Used from several threads.

    As many come to be as are used at a time, and one more ahead: to start one takes a third of a second on a machine that has
    nothing else to do, and many times that beside queries that keep it busy.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free: list[WorkerProcess] = []
        self._alive = 0
        self._lock = threading.Lock()
        self._decoding = threading.Lock()

    def take(self) -> WorkerProcess:
        """One that may still be starting."""
        with self._lock:
            worker = self._free.pop() if self._free else self._start()
            if not self._free and self._alive < self._most:
                self._free.append(self._start())
            return worker

    @property
    def _most(self) -> int:
        """So many queries run at a time, and so many workers are kept."""
        return 2 * self._limits.query_threads

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(self._limits, self._decoding)
        self._alive += 1
        return worker

    def give_back(self, worker: WorkerProcess, *, was_stopped: bool) -> None:
        """One in which something went wrong is not used again."""
        worker.end_scans()
        with self._lock:
            if worker.is_fit and not was_stopped and len(self._free) < self._most:
                self._free.append(worker)
                return
            self._alive -= 1
        worker.close()

    def close(self) -> None:
        while self._free:
            self._free.pop().close()


_PAUSE_SECONDS = 0.00005
_CELL_BYTES = 16
"""What a value takes besides its bytes."""


def read_result(
    described: Sequence[AnswerColumn], batches: Iterator[pa.RecordBatch], limits: Limits, on_rows: Callable[[int], None]
) -> Result:
    """At most `query_rows` rows; more are cut off. `on_rows` learns of their bytes before they are made."""
    columns = [ResultColumn(column.name, column.type) for column in described]
    reads = [_reader(column.form) for column in described]
    rows: list[Sequence[object]] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > limits.query_bytes:
            raise QueryLimitError(
                f"the answer has more than {limits.query_bytes} bytes (query_bytes); ask for fewer rows or columns"
            )
        if size > limits.query_answer_bytes:
            raise QueryLimitError(
                f"the answer has more than {limits.query_answer_bytes} bytes (query_answer_bytes); ask for fewer rows"
            )
        on_rows(batch.nbytes + batch.num_rows * batch.num_columns * _CELL_BYTES)
        # Making rows takes the interpreter's lock; between batches it goes to whoever waits for it, who needs a moment to wake.
        time.sleep(_PAUSE_SECONDS)
        rows += zip(*(_values(column, read) for column, read in zip(batch.columns, reads, strict=True)), strict=True)
    return Result(
        columns,
        rows[: limits.query_rows],
        f"SELECT {min(len(rows), limits.query_rows)}",
        truncated=len(rows) > limits.query_rows,
    )


def stream_result(
    described: Sequence[AnswerColumn], batches: Iterator[pa.RecordBatch], limits: Limits, out: ResultStream
) -> Result:
    """Hand over all rows, however many."""
    columns = [ResultColumn(column.name, column.type) for column in described]
    reads = [_reader(column.form) for column in described]
    for batch in batches:
        if batch.nbytes > limits.query_bytes:
            raise QueryLimitError(
                f"{batch.num_rows} rows of the answer take more than query_bytes ({limits.query_bytes}); ask for fewer columns"
            )
        cells = [_values(column, read) for column, read in zip(batch.columns, reads, strict=True)]
        out.put(columns, list(zip(*cells, strict=True)))
    if not out.row_count:
        out.put(columns, ())
    return Result(columns, status=f"SELECT {out.row_count}")


def _values(column: pa.Array, read: Callable[[Any], object] | None) -> Sequence[object]:
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        raise SqlError("the answer holds a time outside of the years 1 to 9999; cast it to text") from None
    return values if read is None else [None if value is None else read(value) for value in values]


def _reader(form: str) -> Callable[[Any], object] | None:
    """How a value of Arrow becomes one of ours; `None` where it is one already."""
    kind, _, inner_form = form.partition(" ")
    if kind == LIST:
        inner = _reader(inner_form)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    return _READERS.get(kind)


def _timestamp(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _plain(value: object) -> object:
    """A value of any kind within a struct or map, as JSON can hold it."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() if value and all(isinstance(item, tuple) for item in value):
            return {str(name): _plain(item) for name, item in value}
        case list():
            return [_plain(item) for item in value]
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return _timestamp(value).isoformat()
    return str(value)


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    except RecursionError:
        raise SqlError("the answer holds JSON that is nested too deep to be shown; cast it to text") from None


_READERS: dict[str, Callable[[Any], object]] = {
    JSON: _json,
    NESTED: _plain,
    TEXT: str,
    TIMESTAMP: _timestamp,
    UUID_TEXT: UUID,
    WHOLE: int,
}
