"""HTTP that is loaded with its first connection.

A server that only speaks Kafka does not need it, nor the time and the memory that it takes to load. The first client waits at
the socket meanwhile, some hundredths of a second; nothing that it sends is lost. The framework, which takes most of it, comes
later still (`application`). This module imports nothing of HTTP itself, so that to import it costs nothing.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.http.listener import HttpListener

_log = logging.getLogger(__name__)

_MODULES = ("tailrace.http.app", "tailrace.http.listener")
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 60.0


class HttpOnDemand:
    """`make` is called once the modules are loaded."""

    def __init__(self, bound: socket, make: "Callable[[], HttpListener]") -> None:
        self._bound = bound
        self._make = make
        self._opening: asyncio.Task[None] | None = None
        self._listener: HttpListener | None = None

    async def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._bound, self._open_door)

    async def stop(self) -> None:
        """Also when nobody ever came, or when those who came wait still."""
        asyncio.get_running_loop().remove_reader(self._bound)
        if self._listener is not None:
            await self._listener.stop()
        elif self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])

    @property
    def is_loaded(self) -> bool:
        return self._listener is not None

    def _open_door(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        self._opening = loop.create_task(self._open(), name="http-on-demand")

    async def _open(self) -> None:
        """Until it works: what keeps it from that may pass, such as too many open files, and Kafka's clients don't need it."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                self._listener = await self._load()
            except Exception:  # noqa: BLE001  whatever it is, the server goes on without HTTP
                _log.exception("HTTP can't be served; its clients wait, and it is tried again in %g s", pause)
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _load(self) -> "HttpListener":
        loop = asyncio.get_running_loop()
        for name in _MODULES:
            # In a thread, so that Kafka's clients are served meanwhile.
            await loop.run_in_executor(None, importlib.import_module, name)
        listener = self._make()
        await listener.start()
        return listener
