"""The process that runs DuckDB, one query at a time, for a server that hands it the rows.

DuckDB is locked in by `session.py`; what is left to fear is its memory. It bounds what it keeps, but a single call such as
`replace` may ask for gigabytes. Here the kernel bounds that, and it is an error and not the end of the server. A query
that must stop is stopped by ending the process; one that only makes room for others is interrupted, and the process goes on.
It ends by itself when the server has gone, also in the middle of a query, or when a query takes longer than the server would
let it.
"""

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa

from tailrace.model.errors import QueryLimitError, SqlError, UnsupportedSqlError
from tailrace.model.limits import MIB
from tailrace.model.parent_process import end_with_parent
from tailrace.sql.select.channel import (
    QUERY_NUMBER,
    Ask,
    Channel,
    Columns,
    Done,
    Known,
    Message,
    Piece,
    Pull,
    Reason,
    Refused,
    Rows,
    Run,
)
from tailrace.sql.select.session import QueryInterrupted, Session

_SPARE_SECONDS = 5
_SPARE_BYTES = 256 * MIB
_STEPS = 2
"""How many times `query_bytes` one step of a query may take besides what DuckDB keeps."""


class Worker:
    def __init__(self, channel: Channel, session: Session, seconds: int) -> None:
        self._channel = channel
        self._session = session
        self._seconds = seconds
        self._lock = threading.Lock()
        self._scans = count()
        self._asked = 0
        self._is_running = False
        """Whether a query may be interrupted; what goes on before and after it may not."""
        self._interrupting = threading.Lock()

    def serve(self) -> None:
        """Until a query leaves the session unfit for another one."""
        is_ready = True
        while is_ready:
            self._channel.send(Done())
            message, _ = self._channel.receive()
            signal.alarm(self._seconds + _SPARE_SECONDS)
            is_ready = self._answer(message)
            signal.alarm(0)

    def interrupt_as_told(self, interrupts: int) -> None:
        """In a thread of its own, because the one that runs a query hears of nothing before the query ends."""
        while told := os.read(interrupts, QUERY_NUMBER.size):
            with self._interrupting:
                # One that comes too late is not meant for the next query.
                if self._is_running and QUERY_NUMBER.unpack(told)[0] == self._asked:
                    self._session.interrupt()

    def _answer(self, message: Message) -> bool:
        """Run a query, and say whether the session is fit for another one."""
        self._session.begin()
        try:
            if isinstance(message, Ask):
                self._channel.send(Known(self._session.constants(message.question)))
                message, _ = self._channel.receive()
            if isinstance(message, Run):
                self._run(message)
        except (SqlError, QueryInterrupted) as error:
            is_ready = not isinstance(error, QueryLimitError) and self._session.reset()
            self._channel.send(Refused(_reason(error), str(error), is_ready))
            return is_ready
        return self._session.reset()

    def _run(self, query: Run) -> None:
        relations = {
            name: _Pulled(self, name, pa.ipc.read_schema(pa.py_buffer(schema))) for name, schema in query.schemas.items()
        }
        self._asked += 1
        self._is_running = True
        try:
            columns, schema, batches = self._session.run(query.text, relations)
            with self._lock:
                self._channel.send(Columns(columns, schema.serialize().to_pybytes()))
            for batch in batches:
                # The server may have to wait until its client takes them; that is no time of the query's.
                signal.alarm(0)
                with self._lock:
                    self._channel.send(Rows(), memoryview(batch.serialize()))
                signal.alarm(self._seconds + _SPARE_SECONDS)
        finally:
            with self._interrupting:
                self._is_running = False

    def pulled(self, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """In whatever thread DuckDB wants the rows."""
        scan = next(self._scans)
        while True:
            with self._lock:
                self._channel.send(Pull(name, scan))
                piece, carried = self._channel.receive()
            if not isinstance(piece, Piece) or piece.has_failed:
                raise SqlError("the server could not read the rows")
            if piece.is_last:
                return
            yield pa.ipc.read_record_batch(pa.py_buffer(carried), schema)


class _Pulled:
    """A relation whose rows the server has."""

    def __init__(self, worker: Worker, name: str, schema: pa.Schema) -> None:
        self._worker = worker
        self._name = name
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._worker.pulled(self._name, self.schema)


def _reason(error: SqlError | QueryInterrupted) -> Reason:
    if isinstance(error, QueryLimitError):
        return "memory"
    if isinstance(error, QueryInterrupted):
        return "interrupted"
    return "unsupported" if isinstance(error, UnsupportedSqlError) else "other"


def _bound_memory(query_bytes: int) -> None:
    """To what the process has now, what DuckDB may keep, and what a step may take besides."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + (1 + _STEPS) * query_bytes + _SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Called with the numbers of the socket and of the pipe for interrupts, the bytes and the seconds that a query may take."""
    end_with_parent()
    end, interrupts, query_bytes, seconds = map(int, sys.argv[1:])
    session = Session(query_bytes)
    if sys.platform == "linux":
        _bound_memory(query_bytes)
    try:
        worker = Worker(Channel(socket.socket(fileno=end)), session, seconds)
        threading.Thread(target=worker.interrupt_as_told, args=(interrupts,), daemon=True).start()
        worker.serve()
    except EOFError:
        pass
    finally:
        session.close()


if __name__ == "__main__":
    main()
