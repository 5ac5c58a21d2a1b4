"""Loads the SQL engine when it is first needed: at the start if the folder has tables, otherwise with the first statement.

The parser takes 31 MB of memory and half a second of the start; without it an idle server has 79 MB. A server that only speaks
Kafka does not need it (decision 0020). This module therefore imports nothing of the engine at the top.
"""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.clock import Clock
from tailrace.model.errors import StoreClosedError
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from tailrace.sql.engine import StatementEngine
    from tailrace.sql.handlers.copy import CopiedRows
    from tailrace.sql.results import Result, ResultEncoder, ResultStream


class LazySqlEngine:
    """Open it with `LazySqlEngine.open` once the broker has started, and close it before the broker."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "LazySqlEngine":
        sql = cls(folder, broker, clock, limits)
        if any(broker.tables):
            await sql._engine()
        return sql

    def __init__(self, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> None:
        self._folder = folder
        self._broker = broker
        self._clock = clock
        self._limits = limits
        self._opening: asyncio.Task[StatementEngine] | None = None
        self._closed = False

    @property
    def is_loaded(self) -> bool:
        return self._opening is not None

    async def execute(
        self, text: str, params: Sequence[Any] | Mapping[str, Any] = (), answer: ReadAnswer | None = None
    ) -> "list[Result]":
        """Call `StatementEngine.execute`. The first statement also waits until the engine is loaded, about half a second."""
        engine = await self._engine()
        return await engine.execute(text, params, answer)

    def execute_at_once(self, text: str, params: Sequence[Any] | Mapping[str, Any]) -> "Result | None":
        """Call `StatementEngine.execute_at_once`, if the engine is loaded."""
        opening = self._opening
        if self._closed or opening is None or not opening.done() or opening.exception() is not None:
            return None
        return opening.result().execute_at_once(text, params)

    async def stream(
        self, text: str, params: Sequence[Any] | Mapping[str, Any], encoder: "ResultEncoder", answer: ReadAnswer
    ) -> "ResultStream":
        """Call `StatementEngine.stream`."""
        engine = await self._engine()
        return await engine.stream(text, params, encoder, answer)

    async def copy_rows(self, table: str, data: bytes, *, skip: bool) -> "CopiedRows":
        """Call `StatementEngine.copy_rows`."""
        engine = await self._engine()
        return await engine.copy_rows(table, data, skip=skip)

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            # A failure was already raised to the callers that waited for the engine.
            (opened,) = await asyncio.gather(self._opening, return_exceptions=True)
            if not isinstance(opened, BaseException):
                await opened.close()

    async def _engine(self) -> "StatementEngine":
        """Return the engine, opening it once for all callers; none of them can cancel that.

        After a failure the next call retries.
        """
        if self._closed:
            raise StoreClosedError("the server is stopping and accepts no more SQL; send the statement again after the restart")
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            # What the engine does by itself is not done by the principal of the first request.
            opening = self._opening = asyncio.create_task(self._open(), context=Context())
        return await asyncio.shield(opening)

    async def _open(self) -> "StatementEngine":
        loop = asyncio.get_running_loop()
        module = await loop.run_in_executor(None, importlib.import_module, "tailrace.sql.engine")
        opened: StatementEngine = await module.StatementEngine.open(self._folder, self._broker, self._clock, self._limits)
        return opened
