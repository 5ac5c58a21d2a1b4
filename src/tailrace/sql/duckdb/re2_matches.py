"""Decides where RE2, which prefers the first alternative, matches the same text as PostgreSQL, which prefers the longest match.

That is so where each character decides which way a match goes on: no alternatives, and no repeat and what follows it, begin
with the same character. There is one way to match any text then, and a greedy engine takes the longest.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tailrace.sql.functions.characters import Ranges, merged
from tailrace.sql.functions.regular_expression_tree import Characters, Constraint, PatternGroup, Piece, RegularExpression


def matches_alike(expression: RegularExpression) -> bool:
    """Return whether RE2 finds the same matches and groups. None of them are empty."""
    return not _is_nullable(expression.root) and _is_decided(expression.root, ())


def always_captures(expression: RegularExpression) -> bool:
    """Return whether each group takes part in every match."""
    return len(list(_certain(expression.root))) == expression.groups


def _certain(group: PatternGroup) -> Iterator[int]:
    if len(group.branches) == 1:
        for piece in group.branches[0].pieces:
            if isinstance(piece.atom, PatternGroup) and piece.least > 0:
                if piece.atom.number:
                    yield piece.atom.number
                yield from _certain(piece.atom)


def _is_decided(group: PatternGroup, following: Ranges) -> bool:
    """Return whether the next character decides each choice. `following` are the characters that can come after the group."""
    firsts = [_first(branch.pieces, following) for branch in group.branches]
    if len(firsts) > 1 and not _are_disjoint(firsts):
        return False
    nullable = [all(map(_is_nullable_piece, branch.pieces)) for branch in group.branches]
    if any(nullable[:-1]):
        return False
    return all(_is_decided_branch(branch.pieces, following) for branch in group.branches)


def _is_decided_branch(pieces: Sequence[Piece], following: Ranges) -> bool:
    for at, piece in enumerate(pieces):
        if isinstance(piece.atom, Constraint):
            continue
        if piece.prefers == "shorter" or piece.most == 0:
            return False
        after = _first(pieces[at + 1 :], following)
        own = _first_of_atom(piece)
        if piece.least != piece.most and (_is_nullable_atom(piece) or not _are_disjoint([own, after])):
            return False
        if not isinstance(piece.atom, PatternGroup):
            continue
        is_repeated = piece.most != 1
        # Groups of a repeat before the last one are not captured by PostgreSQL.
        if is_repeated and (_has_groups(piece.atom) or _is_nullable(piece.atom)):
            return False
        inside = merged([*after, *own]) if is_repeated else after
        if not _is_decided(piece.atom, inside):
            return False
    return True


def _first(pieces: Sequence[Piece], following: Ranges) -> Ranges:
    """Return the characters with which pieces and what follows them can begin."""
    found: list[tuple[int, int]] = []
    for piece in pieces:
        found += _first_of_atom(piece)
        if not _is_nullable_piece(piece):
            return merged(found)
    return merged([*found, *following])


def _first_of_atom(piece: Piece) -> Ranges:
    match piece.atom:
        case Characters():
            return piece.atom.ranges
        case PatternGroup():
            return merged([one for branch in piece.atom.branches for one in _first(branch.pieces, ())])
    return ()


def _are_disjoint(sets: Sequence[Ranges]) -> bool:
    together = sorted(one for ranges in sets for one in ranges)
    return all(left[1] < right[0] for left, right in pairwise(together))


def _has_groups(group: PatternGroup) -> bool:
    """Return whether a group has capturing groups within it."""
    inner = [piece.atom for branch in group.branches for piece in branch.pieces if isinstance(piece.atom, PatternGroup)]
    return any(one.number or _has_groups(one) for one in inner)


def _is_nullable(group: PatternGroup) -> bool:
    return any(all(map(_is_nullable_piece, branch.pieces)) for branch in group.branches)


def _is_nullable_piece(piece: Piece) -> bool:
    return piece.least == 0 or _is_nullable_atom(piece)


def _is_nullable_atom(piece: Piece) -> bool:
    return isinstance(piece.atom, Constraint) or (isinstance(piece.atom, PatternGroup) and _is_nullable(piece.atom))
