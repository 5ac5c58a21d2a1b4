"""Attempts at one request: whether and when there is another one, and which error to raise in the end."""

import time

from tailrace.client.config import ConnectionConfig
from tailrace.model.backoff import Backoff
from tailrace.model.errors import QuotaExceededError, TailraceError, UnknownTopicError


class Attempts:
    """Allows another attempt after each transient error, for `retry_seconds` or `api_timeout`."""

    def __init__(self, config: ConnectionConfig, retry_seconds: float | None = None) -> None:
        self._backoff = Backoff(config.retry_backoff.total_seconds(), config.retry_backoff_max.total_seconds())
        limit = config.api_timeout.total_seconds() if retry_seconds is None else retry_seconds
        self._deadline = time.monotonic() + limit
        self.unknown: TailraceError | None = None
        """The error of the last attempt that may have taken effect."""

    def pause_after(self, error: TailraceError) -> float | None:
        """Return the seconds until the next attempt, or `None` if this was the last."""
        seconds = self._backoff.next_pause()
        if isinstance(error, QuotaExceededError):
            seconds = max(seconds, error.retry_after_seconds)
        if error.outcome == "unknown":
            self.unknown = error
        return None if not is_transient(error) or time.monotonic() + seconds > self._deadline else seconds

    def final_error(self, error: TailraceError) -> TailraceError:
        """Return the error to raise after the last attempt.

        A failed attempt says nothing about an earlier one that may have taken effect.
        """
        return self.unknown or error


def is_transient(error: TailraceError) -> bool:
    """Return whether the same request may soon succeed without anybody doing anything.

    A topic that does not exist is not created by waiting, and the retriable errors of groups need a new join.
    """
    if isinstance(error, QuotaExceededError):
        return True
    return error.retriable and error.http_status >= 500 and not isinstance(error, UnknownTopicError)
