"""Errors of DuckDB as errors of SQL, with PostgreSQL's codes and, where it has the same error, its words."""

import re

import duckdb

from tailrace.model.errors import SqlError

_CODED = re.compile(r"\[([0-9A-Z]{5})\] ([^\n]*)")
_INTEGERS = {"INT16": "smallint", "INT32": "integer", "INT64": "bigint"}
_OVERFLOW = re.compile(r"\b(INT16|INT32|INT64)\b")
_TYPES = {
    "INT16": "smallint",
    "INT32": "integer",
    "INT64": "bigint",
    "BOOL": "boolean",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "UUID": "uuid",
}
_NOT_CONVERTED = re.compile(r"Could not convert string '(.*)' to (\w+)", re.DOTALL)


_KNOWN = {
    "LIMIT/OFFSET cannot be negative": ("2201W", "LIMIT must not be negative"),
    "Argument for ntile must be greater than zero": ("22014", "argument of ntile must be greater than zero"),
    "interval cannot be 0": ("22023", "step size cannot equal zero"),
    "More than one row returned by a subquery": ("21000", "more than one row returned by a subquery used as an expression"),
    "must appear in the GROUP BY": (
        "42803",
        "a column must appear in the GROUP BY clause or be used in an aggregate function",
    ),
}
"""PostgreSQL's codes and words for errors of DuckDB, by a part of what DuckDB says."""


def converted_error(error: Exception) -> SqlError:
    """Return the error that a client gets."""
    said = str(error).split("\n\nLINE ")[0]
    coded = _CODED.search(said)
    if coded is not None:
        return SqlError(coded[2], sqlstate=coded[1])
    overflow = _OVERFLOW.search(said) if isinstance(error, duckdb.OutOfRangeException) or "Out of Range" in said else None
    if overflow is not None or isinstance(error, duckdb.OutOfRangeException):
        kind = "numeric" if overflow is None else _INTEGERS[overflow[1]]
        return SqlError(f"{kind} out of range", sqlstate="22003")
    failed = _NOT_CONVERTED.search(said)
    if failed is not None and failed[2] in _TYPES:
        return SqlError(f'invalid input syntax for type {_TYPES[failed[2]]}: "{failed[1]}"', sqlstate="22P02")
    if "out of range for the destination type" in said:
        kinds = _OVERFLOW.findall(said)
        return SqlError(f"{_INTEGERS.get(kinds[-1] if kinds else '', 'numeric')} out of range", sqlstate="22003")
    for words, (sqlstate, message) in _KNOWN.items():
        if words in said:
            return SqlError(message, sqlstate=sqlstate)
    if isinstance(error, duckdb.ConversionException):
        return SqlError(_words(said), sqlstate="22P02")
    return SqlError(f"the query can't be run: {_words(said)}", sqlstate="22000")


def _words(said: str) -> str:
    # The rest suggests settings that can't be changed here.
    return (said.partition("Error: ")[2] or said).partition(" Use TRY(...)")[0]
