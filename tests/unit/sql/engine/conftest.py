"""One engine for many tests that leave it as they found it: its first query takes longer than all the others."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.limits import Limits
from tailrace.sql.handlers.copy import CopiedRows
from tailrace.sql.results import Result
from tests.support.aio import TEST_SECONDS
from tests.support.sql import SqlClient, running_sql

T = TypeVar("T")


class SharedSql:
    """Calls an engine that lives on the event loop of another thread."""

    def __init__(self, sql: SqlClient, loop: asyncio.AbstractEventLoop) -> None:
        self._sql = sql
        self._loop = loop

    @property
    def broker(self) -> Broker:
        """What the engine runs on, to be looked at only."""
        return self._sql.broker

    def dicts(self, text: str, params: Any = ()) -> list[dict[str, object]]:
        return self._wait(self._sql.dicts(text, params))

    def run(self, text: str, params: Any = ()) -> None:
        self._wait(self._sql.engine.execute(text, params))

    def result(self, text: str, params: Any = ()) -> Result:
        return self._wait(self._sql.run(text, params))

    def rows(self, text: str, params: Any = ()) -> list[tuple[object, ...]]:
        return self._wait(self._sql.rows(text, params))

    def copy_rows(self, table: str, data: bytes) -> CopiedRows:
        return self._wait(self._sql.engine.copy_rows(table, data, skip=False))

    def drop_all(self) -> None:
        """Drop all views, tables and topics."""
        for kind in ("VIEW", "TABLE", "TOPIC"):
            for name, *_ in self.rows(f"SHOW {kind}S"):
                quoted = ".".join(f'"{part}"' for part in str(name).split("."))
                self.run(f"DROP {kind} IF EXISTS {quoted} CASCADE")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TEST_SECONDS)


@pytest.fixture(scope="session")
def engine() -> Iterator[SharedSql]:
    ready = threading.Event()
    ends: list[asyncio.Event] = []
    found: list[SharedSql] = []

    async def serve() -> None:
        async with running_sql(clock=SystemClock(), limits=Limits(query_seconds=5)) as sql:
            ends.append(asyncio.Event())
            found.append(SharedSql(sql, asyncio.get_running_loop()))
            ready.set()
            await ends[0].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(TEST_SECONDS)
    yield found[0]
    found[0]._loop.call_soon_threadsafe(ends[0].set)
    thread.join(TEST_SECONDS)
    assert not thread.is_alive()
