"""Automata of regular expressions: how far a part of one matches from a place, in time that grows with the text alone.

States are computed as texts need them. The step budget of a call bounds what a pattern can cost.
"""

from collections.abc import Sequence

from tailrace.sql.functions.characters import class_ranges, is_in
from tailrace.sql.functions.regular_expression_tree import UNBOUNDED, Branch, Characters, Constraint, PatternGroup, Piece
from tailrace.sql.functions.text_functions import TextError

_MAX_STATES = 20_000
_MAX_CACHED = 4_000
_MAX_STEPS = 10_000_000
_END = -1
_KIND_END, _KIND_NEWLINE, _KIND_WORD, _KIND_OTHER = range(4)

State = tuple[frozenset[int], int]


class Alphabet:
    """Sorts characters into classes that no set of a regular expression tells apart."""

    def __init__(self) -> None:
        self._sets: list[Characters] = []
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {}
        self._of_character: dict[str, int] = {}
        self._members: list[tuple[frozenset[int], int]] = []
        self._known: dict[tuple[frozenset[int], int], int] = {}
        self._words = class_ranges("word") or ()

    def number_of(self, one: Characters) -> int:
        key = tuple(one.ranges)
        if key not in self._numbers:
            self._numbers[key] = len(self._sets)
            self._sets.append(one)
        return self._numbers[key]

    def class_of(self, character: str) -> int:
        found = self._of_character.get(character)
        if found is None:
            code = ord(character)
            sets = frozenset(at for at, one in enumerate(self._sets) if is_in(one.ranges, code))
            kind = _KIND_NEWLINE if character == "\n" else _KIND_WORD if is_in(self._words, code) else _KIND_OTHER
            found = self._known.setdefault((sets, kind), len(self._members))
            if found == len(self._members):
                self._members.append((sets, kind))
            self._of_character[character] = found
        return found

    def classes_of(self, text: str) -> list[int]:
        """Return the class of each character."""
        return [self.class_of(one) for one in text]

    def sets_of(self, class_number: int) -> frozenset[int]:
        return self._members[class_number][0]

    def kind_of(self, class_number: int) -> int:
        return _KIND_END if class_number == _END else self._members[class_number][1]


class Automaton:
    """Matches one part of a regular expression."""

    def __init__(self, alphabet: Alphabet, group: PatternGroup) -> None:
        self._alphabet = alphabet
        self._empty: list[list[int]] = []
        self._constraints: list[list[tuple[str, int]]] = []
        self._moves: list[list[tuple[int, int]]] = []
        self._start = self._state()
        self._final = self._state()
        self._add_group(group, self._start, self._final)
        self._steps: dict[tuple[State, int], tuple[bool, State | None]] = {}

    def longest(self, text: Sequence[int], start: int, limit: int, budget: "Budget") -> int:
        """Return the last place where a match from `start` can end, or -1."""
        found = -1
        state = self._first(text, start)
        at = start
        steps = self._steps
        size = len(text)
        while True:
            key = (state, text[at] if at < size else _END)
            step = steps.get(key) or self._step(*key)
            if step[0]:
                found = at
            if at >= limit or step[1] is None:
                break
            state = step[1]
            at += 1
        budget.use(at - start + 1)
        return found

    def shortest(self, text: Sequence[int], start: int, least: int, limit: int, budget: "Budget") -> int:
        """Return the first place from `least` where a match from `start` can end, or -1."""
        state = self._first(text, start)
        at = start
        size = len(text)
        while True:
            step = self._step(state, text[at] if at < size else _END)
            if step[0] and at >= least:
                break
            if at >= limit or step[1] is None:
                at = -1
                break
            state = step[1]
            at += 1
        budget.use(max(at, start) - start + 1)
        return at

    def _first(self, text: Sequence[int], start: int) -> State:
        before = self._alphabet.kind_of(text[start - 1]) if start else _KIND_END
        return frozenset((self._start,)), before

    def _step(self, state: State, class_number: int) -> tuple[bool, State | None]:
        known = self._steps.get((state, class_number))
        if known is not None:
            return known
        places, before = state
        reached = self._closure(places, before, self._alphabet.kind_of(class_number))
        after: set[int] = set()
        if class_number != _END:
            sets = self._alphabet.sets_of(class_number)
            after = {target for place in reached for number, target in self._moves[place] if number in sets}
        following = (frozenset(after), self._alphabet.kind_of(class_number)) if after else None
        if len(self._steps) > _MAX_CACHED:
            self._steps.clear()
        result = (self._final in reached, following)
        self._steps[state, class_number] = result
        return result

    def _closure(self, places: frozenset[int], before: int, after: int) -> set[int]:
        reached = set(places)
        todo = list(places)
        while todo:
            place = todo.pop()
            targets = list(self._empty[place])
            targets += [target for kind, target in self._constraints[place] if _holds(kind, before, after)]
            for target in targets:
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        return reached

    # Construction

    def _state(self) -> int:
        if len(self._empty) >= _MAX_STATES:
            raise TextError("[0A000] the regular expression is too complex")
        self._empty.append([])
        self._constraints.append([])
        self._moves.append([])
        return len(self._empty) - 1

    def _add_group(self, group: PatternGroup, start: int, end: int) -> None:
        for branch in group.branches:
            self._add_branch(branch, start, end)

    def _add_branch(self, branch: Branch, start: int, end: int) -> None:
        place = start
        for piece in branch.pieces:
            following = self._state()
            self._add_piece(piece, place, following)
            place = following
        self._empty[place].append(end)

    def _add_piece(self, piece: Piece, start: int, end: int) -> None:
        place = start
        for _ in range(piece.least):
            following = self._state()
            self._add_atom(piece, place, following)
            place = following
        if piece.most == UNBOUNDED:
            loop, back = self._state(), self._state()
            self._empty[place].append(loop)
            self._add_atom(piece, loop, back)
            self._empty[back].append(loop)
            self._empty[loop].append(end)
            return
        for _ in range(piece.most - piece.least):
            self._empty[place].append(end)
            inside, following = self._state(), self._state()
            self._empty[place].append(inside)
            self._add_atom(piece, inside, following)
            place = following
        self._empty[place].append(end)

    def _add_atom(self, piece: Piece, start: int, end: int) -> None:
        match piece.atom:
            case Characters():
                self._moves[start].append((self._alphabet.number_of(piece.atom), end))
            case Constraint():
                self._constraints[start].append((piece.atom.kind, end))
            case PatternGroup():
                inside, outside = self._state(), self._state()
                self._empty[start].append(inside)
                self._add_group(piece.atom, inside, outside)
                self._empty[outside].append(end)


class Budget:
    """The steps that one call may take."""

    def __init__(self) -> None:
        self._left = _MAX_STEPS

    def use(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TextError("[0A000] the regular expression takes too many steps on this text")


def _holds(kind: str, before: int, after: int) -> bool:
    match kind:
        case "A":
            return before == _KIND_END
        case "Z":
            return after == _KIND_END
        case "^":
            return before in (_KIND_END, _KIND_NEWLINE)
        case "$":
            return after in (_KIND_END, _KIND_NEWLINE)
    was_word, is_word = before == _KIND_WORD, after == _KIND_WORD
    return {"m": not was_word and is_word, "M": was_word and not is_word, "y": was_word != is_word, "Y": was_word == is_word}[
        kind
    ]
