"""The process that runs DuckDB for a server, one query at a time; the server sends it the rows.

The DuckDB session is in memory and isolated: it can't access files, the network, extensions or its own settings, and its memory
and threads are limited. DuckDB limits what it keeps, but a single call such as `replace` may allocate gigabytes, so the kernel
limits the process too; exceeding that is an error of the query and does not end the server.

A query that must stop is stopped by ending the process; one that only makes room for others is interrupted, and the process
goes on. The process ends by itself when the server has gone, even during a query, or when a query exceeds its time limit.
"""

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tailrace.model.errors import QueryLimitError, SqlError
from tailrace.model.limits import MIB
from tailrace.model.parent_process import end_with_parent
from tailrace.sql.duckdb.session import prepare
from tailrace.sql.select.columnar_relation import ColumnarRelation
from tailrace.sql.select.engine_errors import converted_error
from tailrace.sql.select.worker_protocol import (
    QUERY_NUMBER,
    ConstantValues,
    EvaluateConstants,
    FailureReason,
    NextBatch,
    QueryFailed,
    Relation,
    RelationBatch,
    RelationStream,
    ResultBatch,
    ResultSchema,
    RunQuery,
    WorkerChannel,
    WorkerMessage,
    WorkerReady,
)

_ROWS_AT_ONCE = 512
_KEPT_SOURCES = 16
# Half of the processors are left for producers and consumers.
_THREADS = max(1, (os.cpu_count() or 1) // 2)
_FOREIGN_ERRORS = (duckdb.Error, pa.ArrowException, OSError, MemoryError)


_EXTRA_SECONDS = 5
_EXTRA_BYTES = 256 * MIB
_STEPS = 2
"""How many times `query_bytes` one step of a query may take in addition to what DuckDB keeps."""


class QueryInterrupted(Exception):
    """The query was interrupted to make room for others."""


class DuckDbSession:
    def __init__(self, query_bytes: int) -> None:
        self._query_bytes = query_bytes
        self._sources: dict[str, _Source] = {}
        """What DuckDB knows by a name. It is kept for the next query, because to register it takes half a millisecond."""
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "allow_community_extensions": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "enable_external_access": "false",
                "max_temp_directory_size": "0KB",
                "memory_limit": f"{query_bytes}B",
                "python_enable_replacements": "false",
                "temp_directory": "",
                "threads": str(_THREADS),
            },
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        prepare(self._connection)
        self._connection.execute("SET lock_configuration = true")

    def begin(self) -> None:
        """Start a transaction."""
        self._connection.execute("BEGIN")

    def constants(self, question: str, count: int) -> Sequence[int | None]:
        """Return one row of numbers, or nulls if one of them can't be computed; the query itself will fail or not need it."""
        try:
            (row,) = self._connection.execute(question).fetchall()
        except _FOREIGN_ERRORS as error:
            converted = self._converted_error(error)
            if isinstance(converted, QueryLimitError):
                raise converted from error
            self._connection.execute("ROLLBACK")
            self.begin()
            return (None,) * count
        return tuple(row)

    def run(self, text: str, relations: Mapping[str, Relation]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the columns and rows of a query; rows are produced while they are read."""
        try:
            self._register(relations)
            reader: pa.RecordBatchReader = self._connection.sql(text).to_arrow_reader(_ROWS_AT_ONCE)
        except _FOREIGN_ERRORS as error:
            raise self._converted_error(error) from error
        return reader.schema, self._batches(reader)

    def reset(self) -> bool:
        """Discard the query, and return whether the session can run another one."""
        try:
            # This comes first, because a failed query leaves a transaction in which nothing else works.
            self._connection.execute("ROLLBACK")
            for name in list(self._sources)[_KEPT_SOURCES:]:
                self._connection.unregister(name)
                del self._sources[name]
        except duckdb.Error:
            return False
        for source in self._sources.values():
            source.relation = None
        return True

    def _register(self, relations: Mapping[str, Relation]) -> None:
        """Tell DuckDB of the relations that it does not know in this form."""
        new = {}
        for name, relation in relations.items():
            source = self._sources.get(name)
            if source is not None and source.schema.equals(relation.schema, check_metadata=True):
                source.relation = relation
            else:
                new[name] = relation
        if not new:
            return
        # Outside of the transaction, at whose end it would be forgotten.
        self._connection.execute("ROLLBACK")
        for name, relation in new.items():
            if name in self._sources:
                self._connection.unregister(name)
            self._sources[name] = _Source(relation)
            self._connection.register(name, self._sources[name])
        self.begin()

    def interrupt(self) -> None:
        """Make the running query fail, if there is one. May be called from any thread."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            with reader:
                yield from reader
        except _FOREIGN_ERRORS as error:
            raise self._converted_error(error) from error

    def _converted_error(self, error: Exception) -> SqlError | QueryInterrupted:
        said = str(error).split("\n\nLINE ")[0]
        if isinstance(error, duckdb.InterruptException) or "INTERRUPT Error" in said:
            return QueryInterrupted("the query was interrupted to make room for others")
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "Out of Memory Error" in said:
            return QueryLimitError(
                f"the query needs more memory than query_bytes allows ({self._query_bytes}); restrict it by WHERE, or select"
                " fewer columns"
            )
        return converted_error(error)


class _Source:
    """What a name stands for: a relation of the running query, always with the same columns."""

    def __init__(self, relation: Relation) -> None:
        self.schema = relation.schema
        self.relation: Relation | None = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        if self.relation is None:
            raise SqlError("the relation is not one of the query")
        return RelationStream(self.relation).__arrow_c_stream__(requested_schema)


class QueryWorker:
    def __init__(self, channel: WorkerChannel, session: DuckDbSession, seconds: int) -> None:
        self._channel = channel
        self._session = session
        self._seconds = seconds
        self._lock = threading.Lock()
        self._scans = count()
        self._asked = 0
        self._is_running = False
        """Whether a query runs that may be interrupted; what happens before and after it may not."""
        self._interrupting = threading.Lock()

    def serve(self) -> None:
        """Run queries until one leaves the session unusable."""
        is_ready = True
        while is_ready:
            self._channel.send(WorkerReady())
            message, _ = self._channel.receive()
            signal.alarm(self._seconds + _EXTRA_SECONDS)
            is_ready = self._answer(message)
            signal.alarm(0)

    def handle_interrupts(self, interrupts: int) -> None:
        """Interrupt queries on request. Runs in its own thread, because the one that runs a query blocks until it ends."""
        while told := os.read(interrupts, QUERY_NUMBER.size):
            with self._interrupting:
                # A late interrupt must not affect the next query.
                if self._is_running and QUERY_NUMBER.unpack(told)[0] == self._asked:
                    self._session.interrupt()

    def _answer(self, message: WorkerMessage) -> bool:
        """Run a query, and return whether the session can run another one."""
        self._session.begin()
        try:
            if isinstance(message, EvaluateConstants):
                self._channel.send(ConstantValues(self._session.constants(message.question, message.count)))
                message, _ = self._channel.receive()
            if isinstance(message, RunQuery):
                self._run(message)
        except (SqlError, QueryInterrupted) as error:
            is_ready = not isinstance(error, QueryLimitError) and self._session.reset()
            sqlstate = error.sqlstate if isinstance(error, SqlError) else ""
            self._channel.send(QueryFailed(_reason(error), str(error), sqlstate, is_ready))
            return is_ready
        return self._session.reset()

    def _run(self, query: RunQuery) -> None:
        relations: dict[str, Relation] = {
            name: _Pulled(self, name, pa.ipc.read_schema(pa.py_buffer(schema))) for name, schema in query.schemas.items()
        }
        for name, file in query.copies.items():
            relations[name] = ColumnarRelation(file, relations[name])
        self._asked += 1
        self._is_running = True
        try:
            schema, batches = self._session.run(query.text, relations)
            with self._lock:
                self._channel.send(ResultSchema(schema.serialize().to_pybytes()))
            for batch in batches:
                # The server may have to wait for its client; that does not count as time of the query.
                signal.alarm(0)
                with self._lock:
                    self._channel.send(ResultBatch(), memoryview(batch.serialize()))
                signal.alarm(self._seconds + _EXTRA_SECONDS)
        finally:
            with self._interrupting:
                self._is_running = False

    def pulled(self, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a relation from the server. Called in any of DuckDB's threads."""
        scan = next(self._scans)
        while True:
            with self._lock:
                self._channel.send(NextBatch(name, scan))
                piece, carried = self._channel.receive()
            if not isinstance(piece, RelationBatch) or piece.has_failed:
                raise SqlError("the server could not read the rows of the query")
            if carried:
                yield pa.ipc.read_record_batch(pa.py_buffer(carried), schema)
            if piece.is_last:
                return


class _Pulled:
    """A relation whose rows come from the server."""

    def __init__(self, worker: QueryWorker, name: str, schema: pa.Schema) -> None:
        self._worker = worker
        self._name = name
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._worker.pulled(self._name, self.schema)


def _reason(error: SqlError | QueryInterrupted) -> FailureReason:
    if isinstance(error, QueryLimitError):
        return "memory"
    return "interrupted" if isinstance(error, QueryInterrupted) else "other"


def _bound_memory(query_bytes: int) -> None:
    """Limit the memory of the process to what it has now, what DuckDB may keep, and what a step may take in addition."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + (1 + _STEPS) * query_bytes + _EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Serve the parent process.

    The arguments are the descriptors of the socket and of the pipe for interrupts, and the bytes and seconds that a query may
    take.
    """
    end_with_parent()
    end, interrupts, query_bytes, seconds = map(int, sys.argv[1:])
    session = DuckDbSession(query_bytes)
    if sys.platform == "linux":
        _bound_memory(query_bytes)
    try:
        worker = QueryWorker(WorkerChannel(socket.socket(fileno=end)), session, seconds)
        threading.Thread(target=worker.handle_interrupts, args=(interrupts,), daemon=True).start()
        worker.serve()
    except EOFError:
        pass
    finally:
        session.close()


if __name__ == "__main__":
    main()
