"""What PostgreSQL's functions about the session return: there is one database, one user, and `public` is the schema of names
without a namespace."""

from collections.abc import Mapping

from tailrace import __version__
from tailrace.sql.analysis.tree import Constant
from tailrace.sql.analysis.types import TEXT, SqlType

DATABASE = "tailrace"
USER = "tailrace"
PUBLIC = "public"
NAME = SqlType("name")
_FUNCTIONS: Mapping[str, tuple[SqlType, str]] = {
    "version": (TEXT, f"PostgreSQL 18.0 (Tailrace {__version__})"),
    "current_database": (NAME, DATABASE),
    "current_schema": (NAME, PUBLIC),
}
_VALUES: Mapping[str, str] = {
    "SVFOP_CURRENT_CATALOG": DATABASE,
    "SVFOP_CURRENT_SCHEMA": PUBLIC,
    "SVFOP_CURRENT_ROLE": USER,
    "SVFOP_CURRENT_USER": USER,
    "SVFOP_SESSION_USER": USER,
    "SVFOP_USER": USER,
}


def session_function(name: str, location: int) -> Constant | None:
    """Return the value of a function without arguments, such as `version()`, if it is one about the session."""
    found = _FUNCTIONS.get(name)
    return None if found is None else Constant(*found, location=location)


def session_value(operation: str, location: int) -> Constant | None:
    """Return the value of a keyword such as `CURRENT_USER`, if it is one about the session."""
    found = _VALUES.get(operation)
    return None if found is None else Constant(NAME, found, location=location)
