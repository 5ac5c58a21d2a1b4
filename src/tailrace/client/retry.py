"""Attempts at one request: whether and when there is another one, and what is known in the end."""

import time

from tailrace.client.config import ConnectionConfig
from tailrace.model.backoff import Backoff
from tailrace.model.errors import TailraceError, UnknownTopicError


class Attempts:
    """Goes on after transient errors, for `patience` seconds or `api_timeout`."""

    def __init__(self, config: ConnectionConfig, patience: float | None = None) -> None:
        self._backoff = Backoff(config.retry_backoff.total_seconds(), config.retry_backoff_max.total_seconds())
        self._deadline = time.monotonic() + (config.api_timeout.total_seconds() if patience is None else patience)
        self.unknown: TailraceError | None = None
        """The error of the last attempt that may have taken effect."""

    def pause_after(self, error: TailraceError) -> float | None:
        """Seconds until the next attempt. `None`: this was the last."""
        seconds = self._backoff.next_pause()
        if error.outcome == "unknown":
            self.unknown = error
        return None if not is_transient(error) or time.monotonic() + seconds > self._deadline else seconds

    def verdict(self, error: TailraceError) -> TailraceError:
        """What to tell after the last attempt: after one that may have worked, one that failed says nothing about it."""
        return self.unknown or error


def is_transient(error: TailraceError) -> bool:
    """Whether the same request may succeed in a moment, by nothing but waiting.

    A topic that is not there may be made, but hardly by itself; and what has to do with groups needs more than waiting.
    """
    return error.retriable and error.http_status >= 500 and not isinstance(error, UnknownTopicError)
