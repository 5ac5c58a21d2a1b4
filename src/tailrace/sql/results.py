"""What a statement answers: columns and rows, and a word about what it did."""

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


class ResultColumn(NamedTuple):
    name: str
    type: ColumnType


class Result(NamedTuple):
    """Rows hold Python values: `None`, `bool`, `int`, `float`, `Decimal`, `str`, `bytes`, `date`, `datetime` (UTC), `UUID`,
    and for JSON and lists whatever JSON holds."""

    columns: Sequence[ResultColumn] = ()
    rows: Sequence[Sequence[object]] = ()
    status: str = ""
    """What was done, as in `INSERT 3` or `CREATE TOPIC`."""
    affected: int | None = None
    """Rows written, where the statement writes rows."""
    cursor: Cursor | None = None
    """The place in the log of what was written."""
    truncated: bool = False
    """Whether there were more rows than the limit `query_rows` allows, or more to consume than fits into one answer."""


_AHEAD_BYTES = MIB

ResultRows = Sequence[Sequence[object]]


class ResultEncoder(Protocol):
    """Writes rows in one format. Used by one thread at a time."""

    media_type: str

    def load(self) -> None: ...
    def begin(self, columns: Sequence[ResultColumn]) -> bytes: ...
    def rows(self, rows: ResultRows) -> bytes: ...
    def end(self) -> bytes: ...


class ResultStream:
    """Made on the event loop, where `take` and `close` belong; `put` is for the query's thread, `end` for either."""

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
        """By the monotonic clock, when the last part was handed over; now while it is."""
        return time.monotonic() if self._is_in_part else self._part_ended_at

    def put(self, columns: Sequence[ResultColumn], rows: ResultRows) -> None:
        """Hand over the next rows, once there is room for them."""
        self._is_in_part = True
        try:
            self._hand_over(self._encoded(columns, rows))
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
                    f"the column {known.name!r} holds {known.type} in the first rows and {found.type} after row"
                    f" {self.row_count:,}; CAST it to one of them"
                )
        encoded += self._encoder.rows(rows)
        self.row_count += len(rows)
        return encoded

    def end(self, error: BaseException | None = None) -> None:
        """That was all, or it has failed. Calling it again does nothing."""
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
        """Until there is a first part. Raises what the query failed with before."""
        while True:
            self._arrived.clear()
            with self._changed:
                if self._parts or self._is_done:
                    return
                if self._error is not None:
                    raise self._error
            await self._arrived.wait()

    async def take(self) -> bytes:
        """All parts that are there, or the next one; empty after the last. Raises what the query failed with."""
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
        """Nobody takes any more of it: the query is stopped, if it still runs."""
        with self._changed:
            self.is_closed = True
            self._parts.clear()
            self._changed.notify_all()
        self._on_close()

    def _hand_over(self, part: bytes) -> None:
        stall = self._limits.subscriber_stall_seconds
        with self._changed:
            while self._size >= _AHEAD_BYTES and not self.is_closed:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise QueryLimitError(
                        f"the answer was not taken within streamed_seconds ({self._limits.streamed_seconds}); ask for less at a"
                        " time"
                    )
                before = self._size
                if not self._changed.wait(min(left, 2 * stall)) and self._size == before and left > 2 * stall:
                    raise QueryLimitError(f"nothing of the answer was taken for {2 * stall} s")
            if self.is_closed:
                raise QueryLimitError("the query was cancelled")
            self._parts.append(part)
            self._size += len(part)
        self._loop.call_soon_threadsafe(self._arrived.set)


class StreamSlots:
    """So many answers are made at a time, `streamed_answers`, and up to `queued_queries` wait. Lives on the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.streamed_answers)
        self._waiting = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        if self._waiting >= self._limits.queued_queries:
            raise OverloadedError(
                f"{self._waiting} queries wait for a thread, as many as queued_queries allows; try again after a pause"
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
