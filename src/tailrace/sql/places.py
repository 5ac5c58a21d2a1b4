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


def name_of(table: exp.Table) -> str:
    """With its namespace, as it was written."""
    return ".".join(part.name for part in table.parts)


def is_cte(table: exp.Table) -> bool:
    """Whether the name is that of a CTE where it stands: one of the same WITH sees those before it, and itself if recursive."""
    if table.args.get("db"):
        return False
    inside: exp.Expr = table
    while inside.parent is not None:
        around = inside.parent
        with_ = around.args.get("with_")
        if isinstance(around, exp.With):
            seen = around.expressions if around.recursive else around.expressions[: around.expressions.index(inside)]
        elif isinstance(with_, exp.With) and with_ is not inside:
            seen = with_.expressions
        else:
            seen = []
        if any(cte.alias == table.name for cte in seen):
            return True
        inside = around
    return False
