"""Writes regular expressions for RE2, DuckDB's engine, where only whether one matches is asked: that does not depend on what
an engine prefers. Sets of characters are written out, because RE2 has other classes and another idea of case.
"""

from collections.abc import Iterable

from tailrace.sql.functions.characters import LAST_CHARACTER, Ranges
from tailrace.sql.functions.regular_expression_tree import (
    UNBOUNDED,
    Branch,
    Characters,
    Constraint,
    PatternGroup,
    Piece,
    RegularExpression,
)

_MAX_COST = 10_000
_CONSTRAINTS = {"A": "\\A", "Z": "\\z", "^": "(?m:^)", "$": "(?m:$)"}
_ALL = [(1, LAST_CHARACTER)]


def re2_pattern(expression: RegularExpression) -> str | None:
    """Return the pattern of RE2, or `None` if it has none or one that would be large."""
    if _cost(expression.root) > _MAX_COST or not _is_known(expression.root):
        return None
    return _group(expression.root)


def literal_of(expression: RegularExpression) -> tuple[bool, str, bool] | None:
    """Return the text that an expression is, and whether it stands at the beginning and at the end of what it matches."""
    if len(expression.root.branches) != 1:
        return None
    pieces = list(expression.root.branches[0].pieces)
    at_start = bool(pieces) and _is_constraint(pieces[0], "A")
    pieces = pieces[at_start:]
    at_end = bool(pieces) and _is_constraint(pieces[-1], "Z")
    pieces = pieces[: len(pieces) - at_end]
    out = []
    for piece in pieces:
        atom = piece.atom
        if not isinstance(atom, Characters) or (piece.least, piece.most) != (1, 1) or len(atom.ranges) != 1:
            return None
        ((first, last),) = atom.ranges
        if first != last:
            return None
        out.append(chr(first))
    return at_start, "".join(out), at_end


def _is_constraint(piece: Piece, kind: str) -> bool:
    return isinstance(piece.atom, Constraint) and piece.atom.kind == kind


def _cost(group: PatternGroup) -> int:
    return sum(_piece_cost(piece) for branch in group.branches for piece in branch.pieces)


def _piece_cost(piece: Piece) -> int:
    atom = piece.atom
    inside = _cost(atom) if isinstance(atom, PatternGroup) else 2 * len(atom.ranges) if isinstance(atom, Characters) else 1
    return (inside + 1) * max(piece.least, piece.most, 1)


def _is_known(group: PatternGroup) -> bool:
    return all(_is_known_piece(piece) for branch in group.branches for piece in branch.pieces)


def _is_known_piece(piece: Piece) -> bool:
    match piece.atom:
        case Constraint():
            return piece.atom.kind in _CONSTRAINTS
        case PatternGroup():
            return _is_known(piece.atom)
    return bool(piece.atom.ranges)


def _group(group: PatternGroup) -> str:
    return f"({'' if group.number else '?:'}{'|'.join(map(_branch, group.branches))})"


def _branch(branch: Branch) -> str:
    return "".join(map(_piece, branch.pieces))


def _piece(piece: Piece) -> str:
    match piece.atom:
        case Constraint():
            return _CONSTRAINTS[piece.atom.kind]
        case PatternGroup():
            atom = _group(piece.atom)
        case _:
            atom = _set(piece.atom.ranges)
    if piece.most == UNBOUNDED:
        return atom + ({0: "*", 1: "+"}.get(piece.least) or f"{{{piece.least},}}")
    if piece.most == 0:
        return ""
    if (piece.least, piece.most) == (1, 1):
        return atom
    return f"{atom}{{{piece.least},{piece.most}}}"


def _set(ranges: Ranges) -> str:
    if list(ranges) == _ALL:
        return "(?s:.)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    return f"[{''.join(_ranges(ranges))}]"


def _ranges(ranges: Ranges) -> Iterable[str]:
    for first, last in ranges:
        yield _character(first) if first == last else f"{_character(first)}-{_character(last)}"


def _character(code: int) -> str:
    one = chr(code)
    return one if one.isascii() and one.isalnum() else f"\\x{{{code:x}}}"
