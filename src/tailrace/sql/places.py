"""Where in a text something stands, as people count: lines and columns from 1."""

from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token


class Place(NamedTuple):
    line: int
    column: int


def place_at(text: str, index: int) -> Place:
    """A line ends with a line feed, a carriage return, or both."""
    breaks = text.count("\n", 0, index) + text.count("\r", 0, index) - text.count("\r\n", 0, index)
    return Place(breaks + 1, index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)))


def place_of_token(token: Token, text: str) -> Place:
    """Where a token begins. sqlglot tells where it ends, which may be in another line."""
    return place_at(text, token.start)


def place_of(tree: exp.Expr) -> Place | None:
    """The first word of a tree that has a place: names, numbers, strings and functions have one, operators have none."""
    places = [
        (meta["start"], Place(meta["line"], max(1, meta["col"] - (meta["end"] - meta["start"]))))
        for node in tree.walk()
        if "line" in (meta := node.meta)
    ]
    return min(places)[1] if places else None
