"""HTTP that is loaded with its first connection.

The framework takes a fifth of an idle server's memory and a third of its start, and a server that only speaks Kafka does not
need it. The first client waits at the socket meanwhile, some tenths of a second; nothing that it sends is lost. This module
imports nothing of HTTP itself, so that to import it costs nothing.
"""

import asyncio
import importlib
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING

from tailrace.model.errors import ConfigurationError

if TYPE_CHECKING:
    from tailrace.http.listener import HttpListener

_MODULES = ("tailrace.http.app", "tailrace.http.listener")


class HttpOnDemand:
    """`make` is called once the modules are loaded. `on_failure` is told if that does not work: nobody would be answered."""

    def __init__(
        self, bound: socket, make: "Callable[[], HttpListener]", on_failure: Callable[[ConfigurationError], None]
    ) -> None:
        self._bound = bound
        self._make = make
        self._on_failure = on_failure
        self._opening: asyncio.Task[HttpListener | None] | None = None

    async def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._bound, self._open_door)

    async def stop(self) -> None:
        """Also when nobody ever came."""
        asyncio.get_running_loop().remove_reader(self._bound)
        listener = await self._opening if self._opening is not None else None
        if listener is not None:
            await listener.stop()

    @property
    def is_loaded(self) -> bool:
        return self._opening is not None

    def _open_door(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        self._opening = loop.create_task(self._open(), name="http-on-demand")

    async def _open(self) -> "HttpListener | None":
        loop = asyncio.get_running_loop()
        try:
            for name in _MODULES:
                # In a thread, so that Kafka's clients are served meanwhile.
                await loop.run_in_executor(None, importlib.import_module, name)
            listener = self._make()
            await listener.start()
        except Exception as error:  # noqa: BLE001  whatever it is, it would have kept the server from starting
            self._on_failure(ConfigurationError(f"HTTP can't be served: {error}; is everything installed?"))
            return None
        return listener
