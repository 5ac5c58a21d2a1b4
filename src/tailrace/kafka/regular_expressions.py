"""The regular expressions of Kafka's clients, which Kafka reads with RE2.

The part of RE2 that is unambiguous is translated for the automata of SQL's regular expressions, whose time grows with the text
alone. Flags, named groups, classes by name, assertions within words and Unicode properties are rejected, and so is a pattern
that needs too many states.
"""

import re
import time
from collections.abc import Callable

from tailrace.model.errors import InvalidRegularExpressionError

_MAX_LENGTH = 1_000
_MAX_STATES = 1_000
_MAX_REPEATS = 255
_MAX_SECONDS = 1.0
"""How long all matches with one pattern may take together."""
_REPEAT = re.compile(r"\{([0-9]{1,4})(,([0-9]{0,4}))?\}", re.ASCII)
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_PUNCTUATION = frozenset("\\.[](){}*+?|^$-/_ @#:,=!<>&%~\"'`;")
_CONTROLS = frozenset("tnrf")


class Re2Pattern:
    """A compiled pattern. It must match the whole text."""

    def __init__(self, pattern: str, clock: Callable[[], float] = time.monotonic) -> None:
        # Loaded with the first pattern: few clients send one.
        from tailrace.sql.functions.regular_expression_automata import Alphabet, Automaton, Budget
        from tailrace.sql.functions.regular_expressions import read
        from tailrace.sql.functions.text_functions import TextError

        self._pattern = pattern
        self._clock = clock
        self._seconds = 0.0
        if len(pattern) > _MAX_LENGTH:
            raise InvalidRegularExpressionError(
                f"the regular expression has {len(pattern)} characters, more than {_MAX_LENGTH}"
            )
        try:
            self._alphabet = Alphabet()
            self._automaton = Automaton(self._alphabet, read(_Translator(pattern).translated()).root)
        except TextError as error:
            raise InvalidRegularExpressionError(f"{pattern!r} is not valid: {str(error).partition('] ')[2]}") from None
        if self._automaton.states > _MAX_STATES:
            raise InvalidRegularExpressionError(
                f"{pattern!r} needs {self._automaton.states} states, more than {_MAX_STATES}; use fewer or smaller repeats"
            )
        self._new_budget = Budget

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text. Raises if its matches took too long together."""
        begin = self._clock()
        classes = self._alphabet.classes_of(text)
        # The longest match is the whole text, if any match is.
        found = self._automaton.longest(classes, 0, len(classes), self._new_budget()) == len(classes)
        self._seconds += self._clock() - begin
        if self._seconds > _MAX_SECONDS:
            raise InvalidRegularExpressionError(f"{self._pattern!r} takes too long to match; use a simpler regular expression")
        return found


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._parts: list[str] = []

    def translated(self) -> str:
        can_repeat = False
        while self._at < len(self._pattern):
            character = self._next()
            if character in "*+?":
                self._repeat(character, can_repeat)
                can_repeat = False
            elif character == "{":
                self._counted(can_repeat)
                can_repeat = False
            else:
                can_repeat = self._atom(character)
        return "".join(self._parts)

    def _next(self) -> str:
        if self._at == len(self._pattern):
            raise self._rejected("ends too early")
        character = self._pattern[self._at]
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _atom(self, character: str) -> bool:
        """Translate what is not a quantifier, and return whether a quantifier may follow."""
        match character:
            case "(":
                if self._take("?") and not self._take(":"):
                    raise self._rejected("has flags, a named group or look-around, which are not supported")
                self._parts.append("(?:")
                return False
            case "]" | "}":
                raise self._rejected(f"has an unescaped {character!r}")
            case "|" | "^" | "$":
                self._parts.append(character)
                return False
            case ".":
                self._parts.append(r"[^\n]")
            case "[":
                self._bracket()
            case "\\":
                self._parts.append(self._escape(within_bracket=False))
            case _:
                self._parts.append(character)
        return True

    def _repeat(self, character: str, can_repeat: bool) -> None:
        if not can_repeat:
            raise self._rejected(f"has {character!r} with nothing to repeat")
        # Whether few or many repeats are preferred does not matter to a match of the whole text.
        self._take("?")
        self._parts.append(character)

    def _counted(self, can_repeat: bool) -> None:
        found = _REPEAT.match(self._pattern, self._at - 1)
        if found is None:
            raise self._rejected("has an unescaped '{'")
        if not can_repeat:
            raise self._rejected("has a repeat with nothing to repeat")
        if max(int(number) for number in (found[1], found[3]) if number) > _MAX_REPEATS:
            raise self._rejected(f"repeats more than {_MAX_REPEATS} times")
        self._at = found.end()
        self._take("?")
        self._parts.append(found[0])

    def _bracket(self) -> None:
        parts = ["[^" if self._take("^") else "["]
        is_first = True
        while True:
            character = self._next()
            if character == "]" and not is_first:
                break
            if character == "[":
                raise self._rejected("has a '[' within brackets; write '\\['")
            parts.append(self._escape(within_bracket=True) if character == "\\" else character)
            is_first = False
        self._parts.append("".join(parts) + "]")

    def _escape(self, *, within_bracket: bool) -> str:
        character = self._next()
        if character in _PUNCTUATION or character in _CONTROLS:
            return "\\" + character
        named = _CLASSES.get(character.lower())
        if named is None or (within_bracket and character.isupper()):
            raise self._rejected(f"has the escape '\\{character}', which is not supported here")
        if within_bracket:
            return named
        return f"[^{named}]" if character.isupper() else f"[{named}]"

    def _rejected(self, why: str) -> InvalidRegularExpressionError:
        return InvalidRegularExpressionError(f"the regular expression {self._pattern[:100]!r} {why}")
