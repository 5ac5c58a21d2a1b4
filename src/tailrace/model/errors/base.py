"""The root of the tree of errors, and the kinds that every family knows."""

from typing import ClassVar, Literal

Outcome = Literal["failed", "unknown"]


class TailraceError(Exception):
    """Root of all errors that Tailrace raises on purpose."""

    kafka_code: ClassVar[int] = -1
    http_status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = "failed"

    def afresh(self) -> "TailraceError":
        """The same error without its history. One that is kept and raised many times would drag all its tracebacks along."""
        error = type(self).__new__(type(self), *self.args)
        error.__dict__.update(self.__dict__)
        return error


class InvalidRequestError(TailraceError):
    """The request itself is wrong; sending it again changes nothing."""

    kafka_code = 42
    http_status = 400


class ConfigurationError(InvalidRequestError):
    """A setting has a value that it can't have."""

    kafka_code = 40


class LimitExceededError(InvalidRequestError):
    """A limit of `model/limits.py` would be passed. The message names the limit."""

    kafka_code = 44
