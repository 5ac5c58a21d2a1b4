"""Lines and columns of characters in SQL texts, for error messages."""

from typing import NamedTuple


class TextPosition(NamedTuple):
    """A position in a text; lines and columns count from 1."""

    line: int
    column: int


def position_at(text: str, index: int) -> TextPosition:
    """Return the position of a character. A line ends with a line feed, a carriage return, or both."""
    breaks = text.count("\n", 0, index) + text.count("\r", 0, index) - text.count("\r\n", 0, index)
    return TextPosition(breaks + 1, index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)))
