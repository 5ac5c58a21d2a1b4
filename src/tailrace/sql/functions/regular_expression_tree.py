"""The tree of a regular expression."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.sql.functions.characters import Ranges

UNBOUNDED = -1
"""The most repeats of `*` and `+`."""


@dataclass(slots=True, eq=False)
class Characters:
    """One character of a set."""

    ranges: Ranges


@dataclass(slots=True, eq=False)
class Constraint:
    """A place: `A` and `Z` are the ends of the text, `^` and `$` those of a line, `m` and `M` those of a word."""

    kind: str


@dataclass(slots=True, eq=False)
class PatternGroup:
    branches: "Sequence[Branch]"
    number: int = 0
    """That of a capturing group, from 1."""


@dataclass(slots=True, eq=False)
class Piece:
    """An atom with its quantifier."""

    atom: "Characters | PatternGroup | Constraint"
    least: int = 1
    most: int = 1
    prefers: str = ""
    """`longer` or `shorter` if the quantifier says so."""


@dataclass(slots=True, eq=False)
class Branch:
    pieces: list[Piece] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RegularExpression:
    root: PatternGroup
    groups: int
    """How many capturing groups it has."""
