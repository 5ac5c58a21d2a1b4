"""Results of statements: complete ones, and streams of rows for results of any size.

A stream is made by the query's thread and read by the event loop. Its parts are bytes, encoded in the thread. Only about 1 MiB
is produced ahead of the reader, so a stream takes the same memory whatever its size. A query may take `query_seconds` from one
part to the next; the time that it waits for the reader does not count, up to `streamed_seconds` in total. Errors on the way are
raised to the reader: a result is complete or says that it is not.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from tailrace.model.errors import OverloadedError, QueryLimitError, SqlError
from tailrace.model.ids import Cursor
from tailrace.model.limits import MIB, Limits
from tailrace.model.table import ColumnType

_READ_AHEAD_BYTES = MIB


class ResultColumn(NamedTuple):
    name: str
    type: ColumnType


class RowConflict(NamedTuple):
    """A row that ON CONFLICT DO NOTHING did not insert."""

    row: int
    """Which of the rows of parameters it is, counted from 0."""
    columns: Sequence[str]
    """Those whose values are taken."""
    reason: str


class Result(NamedTuple):
    """The result of one statement.

    Rows hold Python values: `None`, `bool`, `int`, `float`, `Decimal`, `str`, `bytes`, `date`, `time`, `datetime` (UTC) and
    `UUID`, for JSON and lists whatever JSON holds, and for intervals the text that PostgreSQL prints.
    """

    columns: Sequence[ResultColumn] = ()
    rows: Sequence[Sequence[object]] = ()
    status: str = ""
    """What was done, as in `INSERT 3` or `CREATE TOPIC`."""
    affected: int | None = None
    """The number of rows written, if the statement writes rows."""
    cursor: Cursor | None = None
    """The position in the log of the first record written."""
    truncated: bool = False
    """Whether rows are missing: more than `query_rows` allows, or more to consume than fits into one response."""
    conflicts: Sequence[RowConflict] = ()
    """The rows of parameters of an INSERT for which ON CONFLICT DO NOTHING has passed over a row."""


ResultRows = Sequence[Sequence[object]]


class ResultEncoder(Protocol):
    """Encodes rows in one format. Used by one thread at a time."""

    media_type: str

    def load(self) -> None: ...
    def begin(self, columns: Sequence[ResultColumn]) -> bytes: ...
    def rows(self, rows: ResultRows) -> bytes: ...
    def end(self) -> bytes: ...


class RowSink(Protocol):
    """Takes the rows of a query of any size, in the query's thread."""

    row_count: int

    @property
    def last_part_at(self) -> float:
        """Return when rows were last taken, by the monotonic clock; the current time while some are being taken."""

    def put(self, columns: Sequence[ResultColumn], rows: ResultRows) -> None: ...


class ResultStream:
    """A stream of encoded rows. Call `take` and `close` on the event loop, `put` in the query's thread, `end` in either."""

    def __init__(self, encoder: ResultEncoder, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._encoder = encoder
        self._limits = limits
        self._columns: Sequence[ResultColumn] | None = None
        self._changed = threading.Condition()
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._part_ended_at = time.monotonic()
        self._is_in_part = False
        self._deadline = time.monotonic() + limits.streamed_seconds
        self._error: BaseException | None = None
        self._is_done = False
        self._arrived = asyncio.Event()
        self._on_close: Callable[[], object] = lambda: None
        self.is_closed = False
        self.row_count = 0

    @property
    def last_part_at(self) -> float:
        """Return when the last part was queued, by the monotonic clock; the current time while one is being queued."""
        return time.monotonic() if self._is_in_part else self._part_ended_at

    def put(self, columns: Sequence[ResultColumn], rows: ResultRows) -> None:
        """Queue the next rows, waiting until the reader is close enough behind."""
        self._is_in_part = True
        try:
            self._enqueue(self._encoded(columns, rows))
        finally:
            self._part_ended_at = time.monotonic()
            self._is_in_part = False

    def _encoded(self, columns: Sequence[ResultColumn], rows: ResultRows) -> bytes:
        encoded = b""
        if self._columns is None:
            self._columns = columns
            encoded = self._encoder.begin(columns)
        for known, found in zip(self._columns, columns, strict=True):
            if known.type != found.type:
                raise SqlError(
                    f"column {known.name!r} is {known.type} in the first rows and {found.type} after row {self.row_count:,};"
                    " CAST it to one type"
                )
        encoded += self._encoder.rows(rows)
        self.row_count += len(rows)
        return encoded

    def end(self, error: BaseException | None = None) -> None:
        """Mark the stream as complete, or as failed with `error`. Calling it again does nothing."""
        with self._changed:
            if self._is_done or self._error is not None:
                return
            if error is None:
                self._parts.append(self._encoder.end())
                self._is_done = True
            else:
                self._error = error
        self._loop.call_soon_threadsafe(self._arrived.set)

    async def ready(self) -> None:
        """Wait for the first part. Raises the error of the query if it failed before that."""
        while True:
            self._arrived.clear()
            with self._changed:
                if self._parts or self._is_done:
                    return
                if self._error is not None:
                    raise self._error
            await self._arrived.wait()

    async def take(self) -> bytes:
        """Return all parts that are ready, waiting for at least one; empty after the last. Raises the error of the query."""
        while True:
            await self.ready()
            with self._changed:
                if self._error is not None:
                    raise self._error
                taken = b"".join(self._parts)
                self._parts.clear()
                self._size = 0
                self._changed.notify_all()
                if taken or self._is_done:
                    return taken

    def on_close(self, stop: Callable[[], object]) -> None:
        self._on_close = stop

    def close(self) -> None:
        """Discard the rest and stop the query if it still runs."""
        with self._changed:
            self.is_closed = True
            self._parts.clear()
            self._changed.notify_all()
        self._on_close()

    def _enqueue(self, part: bytes) -> None:
        stall = self._limits.subscriber_stall_seconds
        with self._changed:
            while self._size >= _READ_AHEAD_BYTES and not self.is_closed:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise QueryLimitError(
                        f"the result was not read within streamed_seconds ({self._limits.streamed_seconds}); read faster or"
                        " request fewer rows"
                    )
                before = self._size
                if not self._changed.wait(min(left, 2 * stall)) and self._size == before and left > 2 * stall:
                    raise QueryLimitError(
                        f"the client read nothing of the result for {2 * stall} s; run the query again and read its rows"
                    )
            if self.is_closed:
                raise QueryLimitError("the query was cancelled")
            self._parts.append(part)
            self._size += len(part)
        self._loop.call_soon_threadsafe(self._arrived.set)


class StreamSlots:
    """Limits how many results are streamed at a time (`streamed_answers`) and how many wait (`queued_queries`).

    Used on the event loop only.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.streamed_answers)
        self._waiting = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        if self._waiting >= self._limits.queued_queries:
            raise OverloadedError(
                f"{self._waiting} queries are waiting for a thread, as many as queued_queries allows; try again later"
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()
