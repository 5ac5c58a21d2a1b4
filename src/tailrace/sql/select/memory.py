"""A second line of defence against queries that fill the memory.

DuckDB bounds what it keeps between its steps (`query_bytes`), not what a single step allocates: long texts made longer again
and again get past it. So the memory of the whole process is looked at while a query runs.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tailrace.model.errors import QueryLimitError, TailraceError

_INTERVAL_SECONDS = 0.05
_ALLOWANCE = 4
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Stops a query during which the process grows by several times what one query may take."""

    def __init__(self, query_bytes: int, stop: Callable[[TailraceError], None]) -> None:
        self._query_bytes = query_bytes
        self._stop = stop
        self._most = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if _STATM.exists():
            self._most = resident_bytes() + _ALLOWANCE * self._query_bytes
            self._look_later()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_SECONDS, self._look)

    def _look(self) -> None:
        if resident_bytes() > self._most:
            self._stop(QueryLimitError(f"the query takes far more memory than query_bytes allows ({self._query_bytes})"))
        else:
            self._look_later()


def resident_bytes() -> int:
    """Memory of this process that is not swapped out."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
