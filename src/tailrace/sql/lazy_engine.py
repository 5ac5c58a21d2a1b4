"""SQL that is loaded when it is first needed: at the start if the folder has tables, else with the first statement.

Parsers take a third of an idle server's memory and of its start, and a server that only speaks Kafka needs none of them.
This module imports nothing of SQL itself, so that to import it costs nothing.
"""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.clock import Clock
from tailrace.model.errors import StoreClosedError
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from tailrace.sql.engine import Sql
    from tailrace.sql.results import Result, ResultEncoder, ResultStream


class LazySqlEngine:
    """Opened with `LazySqlEngine.open` once the broker has started, and closed before it."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "LazySqlEngine":
        sql = cls(folder, broker, clock, limits)
        if any(broker.tables):
            await sql._ready()
        return sql

    def __init__(self, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> None:
        self._folder = folder
        self._broker = broker
        self._clock = clock
        self._limits = limits
        self._opening: asyncio.Task[Sql] | None = None
        self._closed = False

    @property
    def is_loaded(self) -> bool:
        return self._opening is not None

    async def execute(
        self, text: str, params: Sequence[Any] | Mapping[str, Any] = (), answer: ReadAnswer | None = None
    ) -> "list[Result]":
        """See `SqlEngine.execute`. The first of all statements takes some tenths of a second longer."""
        sql = await self._ready()
        return await sql.engine.execute(text, params, answer)

    async def stream(
        self, text: str, params: Sequence[Any] | Mapping[str, Any], encoder: "ResultEncoder", answer: ReadAnswer
    ) -> "ResultStream":
        """See `SqlEngine.stream`."""
        sql = await self._ready()
        return await sql.engine.stream(text, params, encoder, answer)

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            # Whoever asked for it has been told why it failed.
            (opened,) = await asyncio.gather(self._opening, return_exceptions=True)
            if not isinstance(opened, BaseException):
                await opened.close()

    async def _ready(self) -> "Sql":
        """Opened once for all that wait, none of whom can cancel it. After a failure the next one tries again."""
        if self._closed:
            raise StoreClosedError("the server is stopping and runs no more SQL")
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(opening)

    async def _open(self) -> "Sql":
        loop = asyncio.get_running_loop()
        service = await loop.run_in_executor(None, importlib.import_module, "tailrace.sql.engine")
        opened: Sql = await service.Sql.open(self._folder, self._broker, self._clock, self._limits)
        return opened
