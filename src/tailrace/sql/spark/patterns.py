"""Patterns of LIKE, ILIKE and regular expressions. They are constants, so they are checked and translated when a route is made.

Whether a regular expression matches at all does not depend on which match is found, so PostgreSQL and Java agree as long as
the parts of the pattern mean the same: characters, `.`, sets, classes, anchors, groups, alternatives and quantifiers. The
characters of a class are written out, as PostgreSQL has them. Everything else is refused: back-references, look-ahead.
"""

import re
from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.functions.characters import class_ranges
from tailrace.sql.functions.regular_expression_functions import similar_pattern
from tailrace.sql.functions.text_functions import TextError
from tailrace.sql.spark.templates import Rendered, SparkTemplate, Template, constant_of, fails, spark_string
from tailrace.sql.spark.texts import lower_text

_BOUND = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}")
_MAX_BOUND = 255
_NULL = "CAST(NULL AS BOOLEAN)"
_CASELESS = "(?i)"
_SPACE = r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"


def _like(*, is_negated: bool, ignores_case: bool) -> Callable[[Sequence[str], Call], Rendered]:
    def render(arguments: Sequence[str], call: Call) -> Rendered:
        if is_null(call.arguments[1]):
            return _NULL
        pattern = spark_pattern(*_pattern_of(call.arguments[1]), call.arguments[1].location)
        text = arguments[0]
        if ignores_case:
            if not pattern.isascii():
                raise UnsupportedError("in a route ILIKE can only have letters of ASCII; compare lower(...)", call.location)
            text, pattern = lower_text(text), pattern.lower()
        matched = f"({text} {'NOT ' if is_negated else ''}LIKE {spark_string(pattern)} ESCAPE '\\\\')"
        return fails(matched) if ignores_case else matched

    return render


def _pattern_of(node: Expression) -> tuple[str, str]:
    """Return a pattern of LIKE and its escape character."""
    if isinstance(node, Call) and node.signature.name == "like_escape":
        pattern, escape = (str(constant_of(one, "the pattern of LIKE")) for one in node.arguments)
        if len(escape) > 1:
            raise AnalysisError("22025", "invalid escape string", node.location)
        return pattern, escape
    return str(constant_of(node, "the pattern of LIKE")), "\\"


def spark_pattern(pattern: str, escape: str, location: int) -> str:
    """Return a pattern of LIKE in the form that Spark takes: a backslash comes before `%`, `_` and itself only."""
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            letter = next(letters, "")
            if not letter:
                raise AnalysisError("22025", "LIKE pattern must not end with escape character", location)
            parts.append(f"\\{letter}" if letter in "%_\\" else letter)
        else:
            parts.append("\\\\" if letter == "\\" else letter)
    return "".join(parts)


def _matched(*, is_negated: bool = False, ignores_case: bool = False) -> Callable[[Sequence[str], Call], Rendered]:
    def render(arguments: Sequence[str], call: Call) -> Rendered:
        pattern = call.arguments[1]
        if is_null(pattern):
            return _NULL
        expression = _regular_expression(pattern)
        is_caseless = ignores_case or expression.startswith(_CASELESS)
        translation = _RegularExpression(expression.removeprefix(_CASELESS), pattern.location, is_caseless)
        java = translation.translated()
        if is_caseless and not java.isascii():
            raise UnsupportedError("in a route ~* can only have letters of ASCII", pattern.location)
        flags = "(?si)" if is_caseless else "(?s)"
        text = f"({arguments[0]} RLIKE {spark_string(flags + java)})"
        failure = f"coalesce({arguments[0]} RLIKE '[^\\\\x00-\\\\x7F]', FALSE)" if translation.needs_ascii else ""
        return SparkTemplate(f"(NOT {text})" if is_negated else text, failure=failure)

    return render


def _regular_expression(node: Expression) -> str:
    """Return the regular expression of `~` or of SIMILAR TO."""
    if not isinstance(node, Call) or node.signature.name != "similar_to_escape":
        return str(constant_of(node, "a regular expression"))
    pattern, *escape = (str(constant_of(one, "the pattern of SIMILAR TO")) for one in node.arguments)
    try:
        return similar_pattern(pattern, escape[0] if escape else "\\")
    except TextError as error:
        raise UnsupportedError(f"the pattern is not valid: {error}", node.location) from error


def is_null(node: Expression) -> bool:
    return isinstance(node, Constant) and node.value is None


class _RegularExpression:
    """Translates a pattern from left to right, to Java's form. Raises `UnsupportedError` for what could mean something else."""

    def __init__(self, pattern: str, location: int, ignores_case: bool) -> None:
        self._pattern = pattern
        self._ignores_case = ignores_case
        self._location = location
        self._at = 0
        self.needs_ascii = False
        """Whether the translation counts only for texts of ASCII: a set of all letters is long."""

    def translated(self) -> str:
        if self._pattern.startswith("***"):
            self._refuse("what starts with ***")
        text = self._alternatives()
        if self._at < len(self._pattern):
            raise AnalysisError("2201B", "invalid regular expression: parentheses () not balanced", self._location)
        return text

    def _refuse(self, what: str) -> None:
        raise UnsupportedError(f"a regular expression in a route can't have {what}; use LIKE or simplify it", self._location)

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _alternatives(self) -> str:
        branches = [self._branch()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._branch())
        if len(branches) > 1 and not all(branches):
            self._refuse("an empty alternative")
        return "|".join(branches)

    def _branch(self) -> str:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._piece())
        return "".join(parts)

    def _piece(self) -> str:
        letter = self._peek()
        self._at += 1
        match letter:
            case "^":
                return self._unquantified("^")
            case "$":
                return self._unquantified("\\z")
            case ".":
                atom = "."
            case "(":
                atom = self._group()
            case "[":
                atom = self._set()
            case "\\" if self._peek() in _CONSTRAINTS and self._peek():
                self._at += 1
                self.needs_ascii = True
                return self._unquantified(_CONSTRAINTS[self._pattern[self._at - 1]])
            case "\\" if self._peek() in _COMPLEMENTS and self._peek():
                self._at += 1
                self.needs_ascii = True
                atom = _COMPLEMENTS[self._pattern[self._at - 1]]
            case "\\":
                atom = self._escaped(f"[{_SPACE}]")
            case "*" | "+" | "?":
                raise AnalysisError("2201B", "invalid regular expression: quantifier operand invalid", self._location)
            case "{" if self._peek().isdigit():
                raise AnalysisError("2201B", "invalid regular expression: quantifier operand invalid", self._location)
            case _:
                atom = _quoted(letter)
        return atom + self._quantifier()

    def _unquantified(self, text: str) -> str:
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            self._refuse("a quantifier after ^, $ or the end of a word")
        return text

    def _quantifier(self) -> str:
        letter = self._peek()
        if letter in ("*", "+", "?") and letter:
            self._at += 1
            text = letter
        elif letter == "{" and self._pattern[self._at + 1 : self._at + 2].isdigit():
            found = _BOUND.match(self._pattern, self._at)
            if found is None or int(found[1]) > _MAX_BOUND or int(found[3] or found[1]) > _MAX_BOUND:
                self._refuse("this quantifier")
            else:
                if found[3] is not None and int(found[3]) < int(found[1]):
                    raise AnalysisError("2201B", "invalid regular expression: invalid repetition count(s)", self._location)
                self._at = found.end()
            text = found[0] if found is not None else ""
        else:
            return ""
        if self._peek() == "?":
            self._at += 1
            text += "?"
        if self._peek() in ("*", "+", "?") and self._peek():
            self._refuse("two quantifiers in a row")
        return text

    def _group(self) -> str:
        if self._peek() == "?":
            if self._pattern[self._at : self._at + 2] != "?:":
                self._refuse("(?...)")
            self._at += 2
        inner = self._alternatives()
        if self._peek() != ")":
            raise AnalysisError("2201B", "invalid regular expression: parentheses () not balanced", self._location)
        self._at += 1
        if not inner:
            self._refuse("an empty group")
        return f"(?:{inner})"

    def _escaped(self, spaces: str) -> str:
        letter = self._peek()
        self._at += 1
        if letter == "d":
            return "[0-9]" if spaces.startswith("[") else "0-9"
        if letter == "s":
            return spaces
        if letter == "w":
            return _class("word", is_set=not spaces.startswith("["))
        if letter in ("t", "n", "r"):
            return f"\\{letter}"
        if not letter or letter.isalnum():
            self._refuse(f"\\{letter}")
        return _quoted(letter)

    def _class(self) -> str:
        found = re.compile(r":(\w+):\]").match(self._pattern, self._at)
        if found is None or class_ranges(found[1]) is None:
            self._refuse("this class of characters")
        else:
            self._at = found.end()
        name = found[1] if found is not None else ""
        # Without case, letters of one case are all letters.
        return _class("alpha" if self._ignores_case and name in ("upper", "lower") else name, is_set=True)

    def _set(self) -> str:
        negation = ""
        if self._peek() == "^":
            negation, self._at = "^", self._at + 1
        items: list[str] = []
        while True:
            letter = self._peek()
            self._at += 1
            if not letter:
                raise AnalysisError("2201B", "invalid regular expression: brackets [] not balanced", self._location)
            if letter == "]" and items:
                return f"[{negation}{''.join(items)}]"
            if letter == "[" and self._peek() in (":", ".", "="):
                items.append(self._class())
                continue
            if letter == "\\":
                items.append(self._escaped(_SPACE))
                continue
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                last = self._pattern[self._at + 1]
                if last in ("\\", "[") or last < letter:
                    self._refuse("this range")
                self._at += 2
                items.append(f"{_quoted(letter)}-{_quoted(last)}")
            else:
                items.append(_quoted(letter))


def _class(name: str, *, is_set: bool) -> str:
    """Return the characters of a class, as a set or as a part of one."""
    items = "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in class_ranges(name) or ())
    return items if is_set else f"[{items}]"


_WORD = "[0-9A-Z_a-z]"
_CONSTRAINTS = {
    "A": "\\A",
    "Z": "\\z",
    "m": f"(?<!{_WORD})(?={_WORD})",
    "M": f"(?<={_WORD})(?!{_WORD})",
    "y": f"(?:(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD}))",
    "Y": f"(?:(?<!{_WORD})(?!{_WORD})|(?<={_WORD})(?={_WORD}))",
}
_COMPLEMENTS = {"D": "[^0-9]", "S": r"[^\t-\r ]", "W": "[^0-9A-Z_a-z]"}
"""Constraints and sets, for texts of ASCII."""


def _quoted(letter: str) -> str:
    return letter if letter.isalnum() or not letter.isascii() or letter in " \t\n\r" else f"\\{letter}"


PATTERNS: dict[str, Template] = {
    "text ~~ text": _like(is_negated=False, ignores_case=False),
    "text !~~ text": _like(is_negated=True, ignores_case=False),
    "text ~~* text": _like(is_negated=False, ignores_case=True),
    "text !~~* text": _like(is_negated=True, ignores_case=True),
    "text ~ text": _matched(),
    "text !~ text": _matched(is_negated=True),
    "text ~* text": _matched(ignores_case=True),
    "text !~* text": _matched(is_negated=True, ignores_case=True),
    "regexp_like(text, text)": _matched(),
}
