"""Reads arrays from PostgreSQL's text form: `{a,"b c",NULL}`."""

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.input_texts import read_array_items


class ArrayTextError(Exception):
    """The message begins with PostgreSQL's code in brackets."""


def read_array(text: str) -> list[str | None]:
    """Return the texts of the items of an array of one dimension."""
    try:
        return read_array_items(text)
    except AnalysisError as error:
        raise ArrayTextError(f"[{error.sqlstate}] {error.message}") from None
