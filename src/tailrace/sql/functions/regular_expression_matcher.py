"""Finds what a regular expression matches, by PostgreSQL's rules: first, then longest or shortest as a whole, then its parts.

The parts are decided as PostgreSQL's engine does: the whole has a preference (that of its first quantifier, or the longest if
it has alternatives), and within a match each part takes as much or as little as it prefers, the first part first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tailrace.sql.functions.regular_expression_automata import Alphabet, Automaton, Budget
from tailrace.sql.functions.regular_expression_tree import UNBOUNDED, Branch, Constraint, PatternGroup, Piece
from tailrace.sql.functions.regular_expressions import read

_LONGER, _SHORTER, _MIXED, _CAPTURES = 1, 2, 4, 8
_PREFERENCES = {"": 0, "longer": _LONGER, "shorter": _SHORTER}
Span = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Part:
    """A part of an expression that matters for its captures: `=` has none inside it."""

    kind: str
    flags: int
    group: PatternGroup
    children: "list[_Part]" = field(default_factory=list)
    least: int = 1
    most: int = 1
    capture: int = 0
    automaton: Automaton | None = None


class Matcher:
    """A compiled regular expression."""

    def __init__(self, pattern: str, flags: str) -> None:
        expression = read(pattern, flags)
        self.groups = expression.groups
        self._alphabet = Alphabet()
        self._root = _alternatives(expression.root)
        self._prepare(self._root)

    def _prepare(self, part: _Part) -> None:
        part.automaton = Automaton(self._alphabet, part.group)
        for child in part.children:
            self._prepare(child)

    def search(self, text: str) -> "Search":
        """Return a search in a text, which finds one match after the other."""
        return Search(self._root, self._alphabet.classes_of(text), self.groups)


class Search:
    def __init__(self, root: _Part, classes: Sequence[int], groups: int) -> None:
        self._root = root
        self._classes = classes
        self._groups = groups
        self._budget = Budget()

    def find(self, start: int) -> list[Span | None] | None:
        """Return the first match from a place: its span and those of its groups, or `None`."""
        size = len(self._classes)
        for begin in range(start, size + 1):
            if self._root.flags & _SHORTER:
                end = _automaton(self._root).shortest(self._classes, begin, begin, size, self._budget)
            else:
                end = _automaton(self._root).longest(self._classes, begin, size, self._budget)
            if end >= 0:
                spans: list[Span | None] = [(begin, end), *[None] * self._groups]
                if self._groups:
                    self._divide(self._root, begin, end, spans)
                return spans
        return None

    def find_all(self, start: int = 0) -> Iterator[list[Span | None]]:
        """Yield all matches, none of which overlap."""
        at = start
        while at <= len(self._classes):
            found = self.find(at)
            if found is None:
                return
            yield found
            begin, end = whole(found)
            at = end if end > begin else end + 1

    def _longest(self, part: _Part, begin: int, limit: int) -> int:
        return _automaton(part).longest(self._classes, begin, limit, self._budget)

    def _divide(self, part: _Part, begin: int, end: int, spans: list[Span | None]) -> None:
        """Decide the captures within a part that matches exactly this span."""
        if part.kind == ".":
            left, right = part.children
            middle = self._middle(left, right, begin, end)
            self._divide(left, begin, middle, spans)
            self._divide(right, middle, end, spans)
        elif part.kind == "|":
            chosen = next(child for child in part.children if self._longest(child, begin, end) == end)
            self._divide(chosen, begin, end, spans)
        elif part.kind == "*":
            self._divide_repeats(part, begin, end, spans)
        elif part.kind == "(":
            self._divide(part.children[0], begin, end, spans)
        if part.capture:
            spans[part.capture] = (begin, end)

    def _middle(self, left: _Part, right: _Part, begin: int, end: int) -> int:
        if left.flags & _SHORTER:
            middle = begin
            while True:
                middle = _automaton(left).shortest(self._classes, begin, middle, end, self._budget)
                if self._longest(right, middle, end) == end:
                    return middle
                middle += 1
        middle = self._longest(left, begin, end)
        while self._longest(right, middle, end) != end:
            middle = self._longest(left, begin, middle - 1)
        return middle

    def _divide_repeats(self, part: _Part, begin: int, end: int, spans: list[Span | None]) -> None:
        """Divide a repeated part, which may be absent, into its repeats. The captures are those of the last one."""
        child = part.children[0]
        if begin == end:
            if not child.flags & _SHORTER and self._longest(child, begin, end) == end:
                self._divide(child, begin, end, spans)
            return
        most = end - begin if part.most == UNBOUNDED else min(end - begin, part.most)
        found = self._repeats(child, begin, end, max(most, 1))
        if found is not None:
            self._divide(child, *found, spans)

    def _repeats(self, child: _Part, begin: int, end: int, most: int) -> Span | None:
        """Return the span of the last repeat."""
        failed: set[tuple[int, int]] = set()
        stack = [(begin, self._ends(child, begin, end))]
        while stack:
            start, ends = stack[-1]
            stop = next(ends, None)
            if stop is None:
                stack.pop()
                failed.add((start, len(stack) + 1 if most < end - begin else 0))
                continue
            if stop == end:
                return start, end
            depth = len(stack) + 1
            if len(stack) < most and (stop, depth if most < end - begin else 0) not in failed:
                stack.append((stop, self._ends(child, stop, end)))
        return None

    def _ends(self, child: _Part, begin: int, end: int) -> Iterator[int]:
        """Yield where a repeat from a place can end, in the order of its preference. None is empty."""
        if child.flags & _SHORTER:
            at = _automaton(child).shortest(self._classes, begin, begin + 1, end, self._budget)
            while at >= 0:
                yield at
                if at >= end:
                    return
                at = _automaton(child).shortest(self._classes, begin, at + 1, end, self._budget)
            return
        at = self._longest(child, begin, end)
        while at > begin:
            yield at
            at = self._longest(child, begin, at - 1)


def whole(found: Sequence[Span | None]) -> Span:
    """Return the span of a whole match."""
    return found[0] or (0, 0)


def _automaton(part: _Part) -> Automaton:
    if part.automaton is None:
        raise RuntimeError("the part has no automaton")
    return part.automaton


@lru_cache(256)
def compiled(pattern: str, flags: str = "") -> Matcher:
    """Return the matcher of a pattern. Those of the last patterns are kept."""
    return Matcher(pattern, flags)


# What follows forms the parts in the way in which PostgreSQL's parser does (`parsebranch`, `parseqatom`).


def _up(flags: int) -> int:
    both = flags & _LONGER and flags & _SHORTER
    return flags & ~(_LONGER | _SHORTER) | (_MIXED if both else 0)


def _preferred(flags: int) -> int:
    return flags & (_LONGER | _SHORTER)


def _combined(first: int, second: int) -> int:
    return _up(first | second) | (_preferred(first) or _preferred(second))


def _is_messy(flags: int) -> bool:
    return bool(flags & (_MIXED | _CAPTURES))


def _alternatives(group: PatternGroup) -> _Part:
    if len(group.branches) == 1:
        return _branch(group.branches[0].pieces)
    part = _Part("|", _LONGER, group)
    for branch in group.branches:
        child = _branch(branch.pieces)
        part.children.append(child)
        part.flags |= _up(part.flags | child.flags)
    if not _is_messy(part.flags):
        part.kind, part.children = "=", []
    return part


def _branch(pieces: Sequence[Piece]) -> _Part:
    flags = 0
    plain: list[Piece] = []
    for at, piece in enumerate(pieces):
        if isinstance(piece.atom, Constraint):
            plain.append(piece)
            continue
        if piece.least == piece.most == 0:
            continue
        prefers = _PREFERENCES[piece.prefers]
        atom = _atom(piece)
        together = flags | prefers | (atom.flags if isinstance(piece.atom, PatternGroup) else 0)
        is_capture = isinstance(piece.atom, PatternGroup) and piece.atom.number
        if not is_capture and not _is_messy(_up(together)):
            plain.append(piece)
            flags = together
            continue
        return _concatenated(flags, plain, _repeated(piece, atom, prefers), _combined(prefers, atom.flags), pieces, at)
    return _Part("=", flags, _grouped(plain))


def _concatenated(
    flags: int, plain: Sequence[Piece], repeated: _Part, own_flags: int, pieces: Sequence[Piece], at: int
) -> _Part:
    """Return a branch of plain pieces, one that needs parts, and the rest."""
    rest = pieces[at + 1 :]
    following = repeated
    if rest:
        remaining = _branch(rest)
        own_flags |= _combined(own_flags, remaining.flags)
        following = _Part(".", own_flags, _grouped(pieces[at:]), [repeated, remaining])
    if not plain:
        return following
    prefix = _Part("=", flags, _grouped(plain))
    return _Part(".", flags | _combined(flags, following.flags), _grouped(pieces), [prefix, following])


def _atom(piece: Piece) -> _Part:
    if not isinstance(piece.atom, PatternGroup):
        return _Part("=", 0, _grouped([Piece(piece.atom)]))
    part = _alternatives(piece.atom)
    if not piece.atom.number:
        return part
    if part.capture:
        return _Part("(", part.flags | _CAPTURES, piece.atom, [part], capture=piece.atom.number)
    part.flags |= _CAPTURES
    part.capture = piece.atom.number
    return part


def _repeated(piece: Piece, atom: _Part, prefers: int) -> _Part:
    own = atom.flags & (_LONGER | _SHORTER | _MIXED)
    if piece.least == piece.most == 1 and (prefers == 0 or own == 0 or prefers == own):
        return atom
    flags = _combined(prefers, atom.flags)
    if not atom.flags & _CAPTURES:
        return _Part("=", flags, _grouped([piece]))
    if piece.least > 0:
        # Only the last repeat is captured, so those before it need no parts.
        fewer = Piece(piece.atom, piece.least - 1, piece.most if piece.most == UNBOUNDED else piece.most - 1, piece.prefers)
        return _Part(".", flags, _grouped([piece]), [_Part("=", _preferred(flags), _grouped([fewer])), atom])
    return _Part("*", flags, _grouped([piece]), [atom], piece.least, piece.most)


def _grouped(pieces: Sequence[Piece]) -> PatternGroup:
    return PatternGroup([Branch(list(pieces))])
