"""Processes that run DuckDB for this server, one query at a time each, and how their results are read. See `worker`."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tailrace.model.errors import LimitExceededError, QueryLimitError, SqlError, TailraceError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.values import expression_values, python_values
from tailrace.sql.results import Result, ResultColumn, RowSink
from tailrace.sql.select.relation_scan import RelationScan
from tailrace.sql.select.worker_protocol import (
    QUERY_NUMBER,
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


FEATURE_NOT_SUPPORTED = "0A000"
_PAUSE_SECONDS = 0.00005
_CHECK_SECONDS = 0.01
_ROW_BYTES = 64
# Half of the processors are left for producers and consumers, as by DuckDB.
_DECODERS = max(1, (os.cpu_count() or 1) // 2)
_CELL_BYTES = 16
"""What a value takes in addition to its bytes."""


class WorkerProcess:
    """One process. Only the thread that holds it calls its methods, except `stop` and `interrupt`."""

    def __init__(self, limits: Limits, decoding: threading.Lock, decoders: ThreadPoolExecutor) -> None:
        """`decoding` is held while rows for a query are decoded, because a few records may become many MiB. `decoders` decode
        what long queries will need next.
        """
        self._limits = limits
        self._decoding = decoding
        self._decoders = decoders
        self._scans: dict[int, RelationScan] = {}
        self._failure: TailraceError | None = None
        self._check: Callable[[], None] | None = None
        self._asked = 0
        ours, theirs = socket.socketpair()
        interrupts, self._interrupts = os.pipe()
        os.set_blocking(self._interrupts, False)
        with theirs, os.fdopen(interrupts):
            ends = [theirs.fileno(), interrupts]
            command = [sys.executable, "-m", _WORKER, *map(str, (*ends, limits.query_bytes, limits.query_seconds))]
            # Arrow's own allocator reserves a gigabyte at once, more than the memory limit of the worker allows.
            environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, pass_fds=ends, env=environment
            )
        self._channel = WorkerChannel(ours)
        self._is_ready = False
        self.is_fit = False
        """Whether it can run another query."""

    def wait(self) -> None:
        """Wait until it can run a query."""
        while not self._is_ready:
            message, _ = self._receive()
            self._is_ready = isinstance(message, WorkerReady)
        self._failure = None
        self.is_fit = True

    def constants(self, question: str, count: int) -> Sequence[int | None]:
        """Return the values of constants, one row of numbers. Call it before `run`."""
        self._ask(EvaluateConstants(question, count))
        answer, _ = self._receive()
        if not isinstance(answer, ConstantValues):
            raise self._unexpected(answer)
        return answer.values

    def run(
        self,
        text: str,
        relations: Mapping[str, Relation],
        columns: Sequence[ResultColumn],
        types: Sequence[SqlType],
        out: RowSink | None = None,
        on_rows: Callable[[int], None] = lambda _: None,
        check: Callable[[], None] | None = None,
    ) -> Result:
        """Run a query and return its rows, up to the limits, or write them to `out`. Relations are read as the query needs
        them.

        `on_rows` gets the bytes of rows before they are kept, and may raise. `check` is called while the query runs, and may
        raise to stop it.
        """
        batches = self.batches(text, relations, check)
        if out is not None:
            return stream_result(columns, types, batches, self._limits, out)
        return read_result(columns, types, batches, self._limits, on_rows)

    def batches(
        self, text: str, relations: Mapping[str, Relation], check: Callable[[], None] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Run a query and yield its rows as they come; see `run`."""
        self._check = check
        schemas = {name: relation.schema.serialize().to_pybytes() for name, relation in relations.items()}
        copies = {name: copy for name, relation in relations.items() if (copy := getattr(relation, "copy", None)) is not None}
        self._ask(RunQuery(text, schemas, copies))
        messages = self._served(relations)
        first, _ = next(messages)
        if not isinstance(first, ResultSchema):
            raise self._unexpected(first)
        schema = pa.ipc.read_schema(pa.py_buffer(first.schema))
        for _, carried in messages:
            yield pa.ipc.read_record_batch(pa.py_buffer(carried), schema)

    def end_scans(self) -> None:
        """Release what the relations have read, and stop checking whether to go on."""
        self._scans = {}
        self._check = None

    def stop(self) -> None:
        """Make the query fail at once. May be called from any thread, even after the query has ended."""
        self._process.kill()

    def interrupt(self) -> None:
        """Make the query fail soon and the worker ready for the next one. May be called from any thread."""
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
        """Yield the result of the worker, and send it the batches that it requests meanwhile."""
        while True:
            message, carried = self._receive()
            if isinstance(message, NextBatch):
                with self._decoding:
                    self._send_batch(message, relations)
                    self._scans[message.scan].read_ahead()
            elif isinstance(message, WorkerReady):
                self._is_ready = self.is_fit = True
                return
            elif isinstance(message, ResultSchema | ResultBatch):
                yield message, carried
            else:
                raise self._unexpected(message)

    def _send_batch(self, asked: NextBatch, relations: Mapping[str, Relation]) -> None:
        if asked.scan not in self._scans:
            self._scans[asked.scan] = RelationScan(relations[asked.relation], self._decoders)
        scan = self._scans[asked.scan]
        try:
            batch = scan.take()
            is_last = batch is not None and scan.ends_with(batch)
        except TailraceError as error:
            self._failure = error
            self._send(RelationBatch(has_failed=True))
            return
        if batch is None:
            self._send(RelationBatch(is_last=True))
        else:
            piece = memoryview(batch.serialize())
            del batch
            self._send(RelationBatch(is_last), piece)

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
        while self._check is not None:
            self._check()
            if self._channel.has_message(_CHECK_SECONDS):
                break
        try:
            return self._channel.receive()
        except EOFError as error:
            raise self._gone() from error

    def _unexpected(self, message: WorkerMessage) -> TailraceError:
        if not isinstance(message, QueryFailed):
            return SqlError(f"the process that runs the query sent an unexpected {type(message).__name__}; run the query again")
        self.is_fit = message.is_ready
        if self._failure is not None:
            return self._failure
        if message.reason in ("memory", "interrupted"):
            return QueryLimitError(message.message)
        if message.sqlstate == FEATURE_NOT_SUPPORTED:
            return UnsupportedSqlError(message.message)
        return SqlError(message.message, sqlstate=message.sqlstate)

    def _gone(self) -> TailraceError:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return QueryLimitError(
            f"the process that ran the query ended ({how}), most likely because the query needed too much memory (query_bytes"
            f" is {self._limits.query_bytes}); read fewer records or columns"
        )


class WorkerPool:
    """Processes that wait for a query. Used from several threads.

    There are as many as are used at a time, and one more in advance: starting one takes a third of a second on an idle machine,
    and many times that on a busy one.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free: list[WorkerProcess] = []
        self._alive = 0
        self._lock = threading.Lock()
        self._decoding = threading.Lock()
        self._decoders = ThreadPoolExecutor(_DECODERS, "tailrace-decode")

    def warm_up(self) -> None:
        """Wait until there is a worker that has started, for a thread that must not wait for that."""
        with self._lock:
            if any(worker.is_fit for worker in self._free):
                return
        worker = self.take()
        try:
            worker.wait()
        finally:
            self.release(worker, was_stopped=False)

    def take(self) -> WorkerProcess:
        """Return a worker, which may still be starting."""
        with self._lock:
            started = next((worker for worker in reversed(self._free) if worker.is_fit), None)
            worker = started or (self._free[-1] if self._free else self._start())
            if worker in self._free:
                self._free.remove(worker)
            if not self._free and self._alive < self._max_workers:
                self._free.append(self._start())
            return worker

    @property
    def _max_workers(self) -> int:
        """The largest number of queries that run at a time, and of workers that are kept."""
        return 2 * self._limits.query_threads

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(self._limits, self._decoding, self._decoders)
        self._alive += 1
        return worker

    def release(self, worker: WorkerProcess, *, was_stopped: bool) -> None:
        """Return a worker to the pool, or close it if something went wrong in it."""
        worker.end_scans()
        with self._lock:
            if worker.is_fit and not was_stopped and len(self._free) < self._max_workers:
                self._free.append(worker)
                return
            self._alive -= 1
        worker.close()

    def close(self) -> None:
        while self._free:
            self._free.pop().close()
        self._decoders.shutdown(wait=False)


def read_result(
    columns: Sequence[ResultColumn],
    types: Sequence[SqlType],
    batches: Iterator[pa.RecordBatch],
    limits: Limits,
    on_rows: Callable[[int], None],
) -> Result:
    """Return at most `query_rows` rows; more are cut off. `on_rows` gets their bytes before they are kept."""
    rows: list[Sequence[object]] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > limits.query_bytes:
            raise QueryLimitError(
                f"the result has more than {limits.query_bytes} bytes (query_bytes); request fewer rows or columns"
            )
        if size > limits.query_answer_bytes:
            raise QueryLimitError(
                f"the result has more than {limits.query_answer_bytes} bytes (query_answer_bytes); request fewer rows"
            )
        on_rows(batch.nbytes + batch.num_rows * batch.num_columns * _CELL_BYTES)
        # Building rows holds the interpreter's lock; a pause between batches lets other threads wake up and run.
        time.sleep(_PAUSE_SECONDS)
        rows += _rows(batch, types)
    return Result(
        columns,
        rows[: limits.query_rows],
        f"SELECT {min(len(rows), limits.query_rows)}",
        truncated=len(rows) > limits.query_rows,
    )


def stream_result(
    columns: Sequence[ResultColumn],
    types: Sequence[SqlType],
    batches: Iterator[pa.RecordBatch],
    limits: Limits,
    out: RowSink,
) -> Result:
    """Write all rows to `out`, however many."""
    for batch in batches:
        if batch.nbytes > limits.query_bytes:
            raise QueryLimitError(
                f"{batch.num_rows} rows of the result take more than query_bytes allows ({limits.query_bytes}); request fewer"
                " columns"
            )
        out.put(columns, _rows(batch, types))
    if not out.row_count:
        out.put(columns, ())
    return Result(columns, status=f"SELECT {out.row_count}")


def read_source_rows(types: Sequence[SqlType], batches: Iterator[pa.RecordBatch], most_bytes: int) -> list[tuple[Any, ...]]:
    """Return the rows of a query of a write, as values of expressions."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for batch in batches:
        size += batch.nbytes + batch.num_rows * _ROW_BYTES
        if size > most_bytes:
            raise LimitExceededError(
                f"the rows that the statement writes take more than {most_bytes} bytes, the most that a commit can hold"
                " (frame_bytes); write fewer rows at a time"
            )
        rows += _rows(batch, types, expression_values)
    return rows


def _rows(
    batch: pa.RecordBatch,
    types: Sequence[SqlType],
    convert: Callable[[pa.Array, SqlType], list[Any]] = python_values,
) -> list[tuple[Any, ...]]:
    try:
        cells = [convert(column, kind) for column, kind in zip(batch.columns, types, strict=True)]
    except AnalysisError as error:
        if isinstance(error, UnsupportedError):
            raise UnsupportedSqlError(error.message) from None
        raise SqlError(error.message, sqlstate=error.sqlstate) from None
    except (OverflowError, ValueError):
        raise SqlError("the result has a time outside of the years 1 to 9999; cast it to text", sqlstate="22008") from None
    except RecursionError:
        raise SqlError(
            "the result has JSON that is nested too deeply to be decoded; cast it to text", sqlstate="54001"
        ) from None
    return list(zip(*cells, strict=True))
