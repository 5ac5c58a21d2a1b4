"""Statements of SQL, the tables and routes that they name, and the rows of tables."""

from tailrace.model.errors.base import InvalidRequestError, TailraceError


class SqlError(InvalidRequestError):
    """A statement can't be run as it stands: an unknown column, a wrong type, a value that does not fit."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        """`line` and `column` count from 1 and say where in the text; the message begins with them."""
        super().__init__(message if line is None else f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class SqlSyntaxError(SqlError):
    """The text is not a statement of our SQL. The message says where, and what was expected there."""


class UnsupportedSqlError(SqlError):
    """The statement, clause or function is known and not allowed here."""


class QueryLimitError(SqlError):
    """A query took more time, memory or rows than the limits allow. The message names the limit."""

    http_status = 422


class ConstraintError(SqlError):
    """A row breaks a rule of its table: a key that is there already, a null where none may be."""

    http_status = 409


class UnknownTableError(SqlError):
    """There is no such table."""

    kafka_code = 3
    http_status = 404


class TableExistsError(SqlError):
    """A table, topic or alias of that name exists."""

    kafka_code = 36
    http_status = 409


class TablesBehindError(TailraceError):
    """The tables lack changes that are in the log and are being brought up to it. A change that was asked for meets it too."""

    kafka_code = 56
    http_status = 503
    retriable = True
    outcome = "unknown"


class TablesDamagedError(TailraceError):
    """The file of the tables is not what was written. It is made again from the log; nothing was read or written meanwhile."""

    kafka_code = 56
    http_status = 503
    retriable = True


class UnknownRouteError(SqlError):
    """There is no such route."""

    http_status = 404


class RouteExistsError(SqlError):
    """There is a route that does just the same."""

    http_status = 409


class RoutedError(SqlError):
    """The table or topic can't be dropped, because routes lead from or to it."""

    kafka_code = 44
    http_status = 409
