"""Litestar's application, without what it adds for other kinds of classes than ours, and with a way past it.

Litestar loads plugins for the classes of pydantic and attrs wherever these are installed: a fifth of the server's start, and
memory for nothing. No setting turns that off, so this replaces the method that chooses them, which is not part of Litestar's
interface. With a Litestar that chooses elsewhere the server would work as before and only start slower; a test says so.
"""

from typing import Any

from litestar import Litestar
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from tailrace.http.direct import DirectEndpoints


class Application(Litestar):
    direct: DirectEndpoints | None = None
    """Endpoints that are asked past Litestar."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        endpoint = None if self.direct is None else self.direct.find(scope)
        if self.direct is None or endpoint is None:
            await super().__call__(scope, receive, send)
        else:
            await self.direct.answer(endpoint, scope, receive, send)

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]
