"""What SQLite refuses, in our words."""

import logging
import re

import apsw

from tailrace.model.errors import (
    ConstraintError,
    LimitExceededError,
    QueryLimitError,
    SqlError,
    StorageFailedError,
    StorageFullError,
    TablesDamagedError,
    TailraceError,
    UnsupportedSqlError,
)
from tailrace.model.limits import Limits
from tailrace.sql.tables.table_file import is_damage

_log = logging.getLogger(__name__)

_UNIQUE = re.compile(r"UNIQUE constraint failed: (.*)")
_UNKNOWN_COLUMN = re.compile(r"no such column: \"?([^\"]*)\"?( - should this be .*)?")
_UNKNOWN_FUNCTION = re.compile(r"no such function: (.*)")
_NOT_NULL = re.compile(r"NOT NULL constraint failed: (.*)")


def failure_of(error: Exception, limits: Limits) -> TailraceError:
    """The error of ours for whatever a statement ended with. Errors of our own functions come as they are."""
    if is_damage(error):
        return TablesDamagedError(
            f"the file of the tables is damaged ({error}) and is made again from the log; nothing was read or written:"
            " try again after a pause"
        )
    if isinstance(error, TailraceError):
        return error
    text = str(error)
    match error:
        case apsw.ConstraintError():
            return _constraint(text)
        case apsw.InterruptError():
            return QueryLimitError(f"the statement ran longer than query_seconds allows ({limits.query_seconds} s)")
        case apsw.NoMemError() | MemoryError():
            return QueryLimitError(f"the statement needs more memory than query_bytes allows ({limits.query_bytes})")
        case apsw.TooBigError():
            return LimitExceededError(f"a value is larger than frame_bytes allows ({limits.frame_bytes})")
        case apsw.AuthError() | apsw.SQLError() if "not authorized" in text or "prohibited" in text:
            return UnsupportedSqlError(f"the statement does what statements may not do: {text}")
        case apsw.FullError():
            return StorageFullError(f"the disk of the tables has no room: {text}; nothing was written")
        case apsw.IOError() | apsw.CantOpenError():
            return StorageFailedError(f"the file of the tables can't be used: {text}")
        case RecursionError():
            return SqlError("the statement is nested too deep; take it apart")
        case UnicodeEncodeError():
            return SqlError("a text is not valid Unicode")
        case apsw.Error():
            return SqlError(_in_our_words(text))
    _log.error("a statement met an error that nobody foresaw", exc_info=error)
    return TailraceError(f"the server met an error of its own, {type(error).__name__}; its log says more")


def _in_our_words(text: str) -> str:
    function = _UNKNOWN_FUNCTION.fullmatch(text)
    if function is not None:
        return f"there is no function {function[1].lower()}"
    said = text if text[:2].isupper() else text[:1].lower() + text[1:]
    return _UNKNOWN_COLUMN.sub(r"there is no column \1", said)


def _constraint(text: str) -> ConstraintError:
    unique = _UNIQUE.fullmatch(text)
    if unique is not None:
        names = [name.rpartition(".")[2] for name in unique[1].split(", ")]
        return ConstraintError(f"there is a row with this {', '.join(names)} already; use ON CONFLICT to say what to do then")
    null = _NOT_NULL.fullmatch(text)
    if null is not None:
        return ConstraintError(f"column {null[1].rpartition('.')[2]!r} can't be null")
    return ConstraintError(text)
