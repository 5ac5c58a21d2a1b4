"""Reads PostgreSQL's advanced regular expressions into a tree, as its chapter "POSIX Regular Expressions" describes them.

Back-references, look-around, the older flavours (`b`, `e`) and expanded syntax (`x`) are not supported.
"""

from dataclasses import dataclass
from functools import lru_cache

from tailrace.sql.functions import characters
from tailrace.sql.functions.characters import Ranges, class_ranges, complement, merged
from tailrace.sql.functions.regular_expression_tree import (
    UNBOUNDED,
    Branch,
    Characters,
    Constraint,
    PatternGroup,
    Piece,
    RegularExpression,
)
from tailrace.sql.functions.text_functions import TextError

_MAX_REPEATS = 255
_MAX_CASED_RANGE = 3_000
_NEWLINE = 0x0A
_PLAIN_ESCAPES = {"a": 7, "b": 8, "B": 0x5C, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CLASS_ESCAPES = {"d": "digit", "s": "space", "w": "word"}
_CONSTRAINT_ESCAPES = "AmMyYZ"
_FIXED_DIGITS = {"u": 4, "U": 8}


@dataclass(slots=True)
class _Options:
    ignores_case: bool = False
    stops_at_newline: bool = False
    anchors_at_lines: bool = False
    is_literal: bool = False


@lru_cache(1_000)
def read(pattern: str, flags: str = "") -> RegularExpression:
    """Read a pattern. Raises `TextError` as PostgreSQL does, and for what is not supported."""
    options = _Options()
    _set_options(options, flags)
    if pattern.startswith("***="):
        pattern, options.is_literal = pattern[4:], True
    elif pattern.startswith("***:"):
        pattern = pattern[4:]
    elif pattern.startswith("***"):
        raise _invalid("quantifier operand invalid")
    if not options.is_literal and pattern.startswith("(?") and pattern[2:3].isalpha():
        letters, closed, rest = pattern[2:].partition(")")
        if not closed or not letters.isalpha():
            raise _invalid("invalid embedded option")
        _set_options(options, letters, "invalid embedded option")
        pattern = rest
    return _Reader(pattern, options).read()


def _set_options(options: _Options, flags: str, message: str = "") -> None:
    for flag in flags:
        match flag:
            case "i":
                options.ignores_case = True
            case "c":
                options.ignores_case = False
            case "n" | "m":
                options.stops_at_newline = options.anchors_at_lines = True
            case "p":
                options.stops_at_newline, options.anchors_at_lines = True, False
            case "w":
                options.stops_at_newline, options.anchors_at_lines = False, True
            case "s":
                options.stops_at_newline = options.anchors_at_lines = False
            case "t":
                pass
            case "q":
                options.is_literal = True
            case "b" | "e" | "x":
                raise TextError(f'[0A000] the option "{flag}" of regular expressions is not supported')
            case _ if message:
                raise _invalid(message)
            case _:
                raise TextError(f'[22023] invalid regular expression option: "{flag}"')


def _invalid(message: str) -> TextError:
    return TextError(f"[2201B] invalid regular expression: {message}")


class _Reader:
    def __init__(self, text: str, options: _Options) -> None:
        self._text = text
        self._at = 0
        self._options = options
        self._groups = 0
        self._closed = 0

    def read(self) -> RegularExpression:
        if self._options.is_literal:
            pieces = [Piece(Characters(self._cased(ord(one)))) for one in self._text]
            return RegularExpression(PatternGroup([Branch(pieces)]), 0)
        root = self._alternatives(0)
        if self._at < len(self._text):
            raise _invalid("parentheses () not balanced")
        return RegularExpression(root, self._groups)

    def _peek(self, size: int = 1) -> str:
        return self._text[self._at : self._at + size]

    def _next(self) -> str:
        found = self._peek()
        self._at += 1
        return found

    def _alternatives(self, number: int) -> PatternGroup:
        branches = [self._branch()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._branch())
        return PatternGroup(branches, number)

    def _branch(self) -> Branch:
        branch = Branch()
        while self._peek() not in ("", "|", ")"):
            atom = self._atom()
            if isinstance(atom, Constraint):
                branch.pieces.append(Piece(atom))
                if self._starts_quantifier():
                    raise _invalid("quantifier operand invalid")
                continue
            branch.pieces.append(self._quantified(atom))
        return branch

    def _starts_quantifier(self) -> bool:
        return self._peek() in ("*", "+", "?") or (self._peek() == "{" and self._text[self._at + 1 : self._at + 2].isdigit())

    def _quantified(self, atom: Characters | PatternGroup) -> Piece:
        if not self._starts_quantifier():
            return Piece(atom)
        least, most, prefers = self._quantifier()
        if self._starts_quantifier():
            raise _invalid("quantifier operand invalid")
        return Piece(atom, least, most, prefers)

    def _quantifier(self) -> tuple[int, int, str]:
        kind = self._next()
        if kind != "{":
            least, most = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}[kind]
            return least, most, self._preference()
        least = self._bound()
        if self._peek() != ",":
            self._expect_brace()
            # The number alone leaves the preference to the atom.
            self._preference()
            return least, least, ""
        self._at += 1
        most = self._bound() if self._peek().isdigit() else UNBOUNDED
        self._expect_brace()
        if most not in (UNBOUNDED,) and least > most:
            raise _invalid("invalid repetition count(s)")
        return least, most, self._preference()

    def _bound(self) -> int:
        start = self._at
        while self._peek().isdigit() and self._peek().isascii():
            self._at += 1
        if start == self._at:
            raise _invalid("invalid repetition count(s)")
        number = int(self._text[start : self._at][:9])
        if number > _MAX_REPEATS:
            raise _invalid("invalid repetition count(s)")
        return number

    def _expect_brace(self) -> None:
        if self._next() != "}":
            raise _invalid("invalid repetition count(s)" if self._at <= len(self._text) else "braces {} not balanced")

    def _preference(self) -> str:
        if self._peek() == "?":
            self._at += 1
            return "shorter"
        return "longer"

    def _atom(self) -> Characters | PatternGroup | Constraint:
        one = self._next()
        match one:
            case "(":
                return self._group()
            case "[":
                return self._bracket()
            case ".":
                newline = ((_NEWLINE, _NEWLINE),) if self._options.stops_at_newline else ()
                return Characters(complement(newline))
            case "^":
                return Constraint("^" if self._options.anchors_at_lines else "A")
            case "$":
                return Constraint("$" if self._options.anchors_at_lines else "Z")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise _invalid("quantifier operand invalid")
            case "{" if self._peek().isdigit():
                raise _invalid("quantifier operand invalid")
        return Characters(self._cased(ord(one)))

    def _group(self) -> PatternGroup:
        number = 0
        if self._peek() == "?":
            kind = self._text[self._at + 1 : self._at + 2]
            if kind in ("=", "!", "<"):
                raise TextError("[0A000] look-around in regular expressions is not supported")
            if kind == "#":
                raise TextError("[0A000] comments in regular expressions are not supported")
            if kind != ":":
                raise _invalid("quantifier operand invalid")
            self._at += 2
        else:
            self._groups += 1
            number = self._groups
        group = self._alternatives(number)
        if self._next() != ")":
            raise _invalid("parentheses () not balanced")
        self._closed += number > 0
        return group

    def _escape(self) -> Characters | Constraint:
        one = self._next()
        if not one:
            raise _invalid("invalid escape \\ sequence")
        if not one.isascii() or not one.isalnum():
            return Characters(self._cased(ord(one)))
        if one in _CONSTRAINT_ESCAPES:
            return Constraint(one)
        if one.lower() in _CLASS_ESCAPES:
            return Characters(_escaped_class(one))
        if one in "123456789":
            return Characters(self._cased(self._number_escape(one)))
        return Characters(self._cased(self._character_escape(one)))

    def _number_escape(self, first: str) -> int:
        """Read `\\1` and so on: a back-reference, or the octal number of a character."""
        start = self._at - 1
        end = self._at
        while end < len(self._text) and self._text[end] in "0123456789":
            end += 1
        digits = self._text[start:end]
        if len(digits) == 1 or int(digits[:9]) <= self._groups:
            raise TextError("[0A000] back-references in regular expressions are not supported")
        self._at = start
        return self._octal()

    def _octal(self) -> int:
        start = self._at
        while self._at < start + 3 and self._peek() and self._peek() in "01234567":
            self._at += 1
        if start == self._at:
            raise _invalid("invalid escape \\ sequence")
        return _checked(int(self._text[start : self._at], 8))

    def _character_escape(self, one: str) -> int:
        if one in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[one]
        if one == "0":
            self._at -= 1
            return self._octal()
        if one == "c" and self._peek():
            return _checked(ord(self._next()) & 0x1F)
        if one in ("u", "U", "x"):
            size = _FIXED_DIGITS.get(one, 255)
            start = self._at
            while self._at < start + size and self._peek() and self._peek() in "0123456789abcdefABCDEF":
                self._at += 1
            digits = self._text[start : self._at]
            if not digits or (one != "x" and len(digits) < size):
                raise _invalid("invalid escape \\ sequence")
            return _checked(int(digits, 16))
        raise _invalid("invalid escape \\ sequence")

    # Bracket expressions

    def _bracket(self) -> Characters | Constraint:
        for word, kind in (("[:<:]]", "m"), ("[:>:]]", "M")):
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return Constraint(kind)
        is_negated = self._peek() == "^"
        self._at += is_negated
        found: list[tuple[int, int]] = []
        is_first = True
        while is_first or self._peek() != "]":
            if not self._peek():
                raise _invalid("brackets [] not balanced")
            self._bracket_item(found, is_first=is_first)
            is_first = False
        self._at += 1
        ranges = merged(found)
        if not is_negated:
            return Characters(ranges)
        if self._options.stops_at_newline:
            ranges = merged([*ranges, (_NEWLINE, _NEWLINE)])
        return Characters(complement(ranges))

    def _bracket_item(self, found: list[tuple[int, int]], *, is_first: bool) -> None:
        start = self._at
        if self._peek(2) == "[:":
            found += self._named_class()
            self._reject_range()
            return
        if self._peek() == "\\" and self._text[self._at + 1 : self._at + 2].lower() in _CLASS_ESCAPES:
            self._at += 2
            found += _escaped_class(self._text[self._at - 1])
            self._reject_range()
            return
        if self._peek() == "-" and not is_first and self._text[self._at + 1 : self._at + 2] != "]":
            raise _invalid("invalid character range")
        is_equivalence = self._peek(2) == "[="
        first = self._bracket_character()
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            if is_equivalence or start == self._at:
                raise _invalid("invalid character range")
            self._at += 1
            if self._peek(2) in ("[:", "[="):
                raise _invalid("invalid character range")
            last = self._bracket_character()
            if first > last:
                raise _invalid("invalid character range")
            found += self._cased_range(first, last)
            return
        found += self._cased(first)

    def _reject_range(self) -> None:
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
            raise _invalid("invalid character range")

    def _named_class(self) -> Ranges:
        end = self._text.find(":]", self._at + 2)
        name = self._text[self._at + 2 : end] if end >= 0 else ""
        if self._options.ignores_case and name in ("upper", "lower"):
            name, end = "alpha", end
        found = class_ranges(name)
        if found is None or end < 0:
            raise _invalid("invalid character class")
        self._at = end + 2
        return found

    def _bracket_character(self) -> int:
        if self._peek(2) in ("[.", "[="):
            mark = self._text[self._at + 1]
            name = self._text[self._at + 2 : self._at + 3]
            if self._text[self._at + 3 : self._at + 5] != f"{mark}]":
                raise TextError("[0A000] names of characters in regular expressions are not supported")
            self._at += 5
            return ord(name)
        one = self._next()
        if one != "\\":
            return ord(one)
        escaped = self._next()
        if not escaped:
            raise _invalid("invalid escape \\ sequence")
        if not escaped.isascii() or not escaped.isalnum():
            return ord(escaped)
        if escaped in _CONSTRAINT_ESCAPES or escaped in "123456789":
            raise _invalid("invalid escape \\ sequence")
        return self._character_escape(escaped)

    def _cased(self, code: int) -> Ranges:
        if not self._options.ignores_case:
            return ((code, code),)
        one = chr(code)
        return merged([(ord(other), ord(other)) for other in (characters.lower(one), characters.upper(one))])

    def _cased_range(self, first: int, last: int) -> Ranges:
        if not self._options.ignores_case:
            return ((first, last),)
        if last - first > _MAX_CASED_RANGE:
            raise TextError("[0A000] so large a range in a regular expression that ignores case is not supported")
        inside = "".join(chr(code) for code in range(first, last + 1) if not 0xD800 <= code <= 0xDFFF)
        others = characters.lower(inside) + characters.upper(inside)
        return merged([(first, last), *((ord(one), ord(one)) for one in others)])


def _escaped_class(letter: str) -> Ranges:
    ranges = class_ranges(_CLASS_ESCAPES[letter.lower()]) or ()
    return complement(ranges) if letter.isupper() else ranges


def _checked(code: int) -> int:
    if not 0 < code <= characters.LAST_CHARACTER or 0xD800 <= code <= 0xDFFF:
        raise _invalid("invalid escape \\ sequence")
    return code
