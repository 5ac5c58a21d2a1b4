"""Names of topics, tables and columns, as the server tells them, kept for a short while."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import NamedTuple

from tailrace.cli.failures import CommandError
from tailrace.cli.server_api import ServerApi

_FRESH_SECONDS = 30.0
_MOST_NAMES = 5_000


class Names(NamedTuple):
    topics: Sequence[str] = ()
    tables: Mapping[str, Sequence[str]] = {}
    """Each with its columns."""


class ServerNames:
    """Asked for in the completer's thread, forgotten by the prompt's. Where there is no answer, the old names must do."""

    def __init__(self, connect: Callable[[], ServerApi]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._known = Names()
        self._fresh_until = 0.0

    def get(self) -> Names:
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._fresh_until = time.monotonic() + _FRESH_SECONDS
                with suppress(CommandError):
                    self._known = self._ask()
            return self._known

    def forget(self) -> None:
        """Names may have changed; ask again when they are needed."""
        self._fresh_until = 0.0

    def _ask(self) -> Names:
        with self._connect() as server:
            topics = [topic["name"] for topic in islice(server.pages("/api/topics", "topics"), _MOST_NAMES)]
            tables = {
                table["name"]: [column["name"] for column in table["columns"]]
                for table in islice(server.pages("/api/tables", "tables"), _MOST_NAMES)
            }
        return Names(topics, tables)
