"""Loads the HTTP listener with its first connection.

A server that is only used over Kafka never loads it, which saves 12 % of its memory (13 of 115 MB, decision 0026). The first
client waits in the backlog of the socket meanwhile, some hundredths of a second, and nothing that it sends is lost. Litestar,
the largest part, is loaded later still (`app.py`). This module imports nothing else of `http`, so that importing it costs
nothing.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING

from tailrace.model.backoff import Backoff

if TYPE_CHECKING:
    from tailrace.http.listener import HttpListener

_log = logging.getLogger(__name__)

_MODULES = ("tailrace.http.app", "tailrace.http.listener")
_FIRST_RETRY_SECONDS = 0.25
_MAX_RETRY_SECONDS = 60.0


class HttpOnDemand:
    """Listens on a socket; `make` creates the real listener once its modules are loaded."""

    def __init__(self, bound: socket, make: "Callable[[], HttpListener]") -> None:
        self._bound = bound
        self._make = make
        self._opening: asyncio.Task[None] | None = None
        self._listener: HttpListener | None = None

    async def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._bound, self._on_first_connection)

    async def stop(self) -> None:
        """Stop the listener, or the loading of it."""
        asyncio.get_running_loop().remove_reader(self._bound)
        if self._listener is not None:
            await self._listener.stop()
        elif self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])

    @property
    def is_loaded(self) -> bool:
        return self._listener is not None

    def _on_first_connection(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        self._opening = loop.create_task(self._open(), name="http-on-demand")

    async def _open(self) -> None:
        """Load and start the listener. Retry on errors: the cause may pass, such as too many open files."""
        backoff = Backoff(_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS)
        while True:
            pause = backoff.next_pause()
            try:
                self._listener = await self._load()
            except Exception:  # noqa: BLE001  Kafka is served without HTTP, whatever the error is
                _log.exception("the HTTP listener can't be loaded; retrying in %.2f s", pause)
            else:
                return
            await asyncio.sleep(pause)

    async def _load(self) -> "HttpListener":
        loop = asyncio.get_running_loop()
        for name in _MODULES:
            # In a thread, so that Kafka clients are served meanwhile.
            await loop.run_in_executor(None, importlib.import_module, name)
        listener = self._make()
        await listener.start()
        return listener
