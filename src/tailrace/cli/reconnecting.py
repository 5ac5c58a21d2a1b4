"""Waiting for a server that went away, for commands that go on when it is back."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.cli.failures import CommandError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class Reconnection:
    """Begins to be patient once the server has been reached: a wrong address is an error at once."""

    def __init__(self, server: "ServerApi", tell: Callable[[str], None]) -> None:
        self._server = server
        self._tell = tell
        self._pause = _FIRST_PAUSE_SECONDS

    def succeeded(self) -> None:
        """The next pause is short again."""
        self._pause = _FIRST_PAUSE_SECONDS

    def after(self, error: CommandError) -> None:
        """Returns when it makes sense to try again; raises the error if it never will."""
        is_passing = error.is_passing if isinstance(error, RefusedError) else isinstance(error, UnreachableError)
        if not (self._server.was_reached and is_passing):
            raise error
        self.wait(str(error))

    def wait(self, reason: str) -> None:
        self._tell(f"{reason}; connecting again")
        while True:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            try:
                self._server.get("/health")
            except CommandError:
                continue
            return
