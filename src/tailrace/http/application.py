"""Litestar's application, without what it adds for other kinds of classes than ours.

Litestar loads plugins for the classes of pydantic and attrs wherever these are installed: a fifth of the server's start, and
memory for nothing. No setting turns that off, so this replaces the method that chooses them, which is not part of Litestar's
interface. With a Litestar that chooses elsewhere the server would work as before and only start slower; a test says so.
"""

from litestar import Litestar
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin


class Application(Litestar):
    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]
