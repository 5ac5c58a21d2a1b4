"""Reads a statement token by token, for the statements that PostgreSQL does not know.

A keyword is a word without quotes, in any case. A token that does not fit raises an error with its position and what was
expected. A parameter may be used wherever a value may. While the values of parameters are not known, a placeholder is returned
instead, so that a text can be checked before.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.text_positions import TextPosition, position_at

_OPENING = ("(", "[")
_CLOSING = (")", "]")
_WORD = re.compile(r"\w+")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}

Values = Mapping[str, object]
"""The values of a statement's parameters by name; those of `?` are `1`, `2` and so on."""


class TokenReader:
    def __init__(self, tokens: Sequence[SqlToken], text: str, values: Values | None = None) -> None:
        self._tokens = tokens
        self._text = text
        self._values = values
        self._at = 0
        self._last = 0
        self._positional = 0
        self.parameters: list[str] = []
        """The names of the parameters read so far."""
        self.is_placeholder = False
        """Whether the last value stands for a parameter whose value is not known yet."""
        self.conceals = False
        """Whether errors don't quote what was found, because it may be a password."""

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def position(self) -> TextPosition:
        if not self.is_at_end:
            return position_at(self._text, self._tokens[self._at].start)
        return position_at(self._text, self._tokens[-1].end)

    def sees(self, phrase: str) -> bool:
        """Return whether these keywords come next."""
        return self._after(phrase) is not None

    def take(self, phrase: str) -> bool:
        """Skip these keywords if they come next, and return whether they did."""
        after = self._after(phrase)
        if after is not None:
            self._last, self._at = self._at, after
        return after is not None

    def expect(self, phrase: str) -> None:
        if not self.take(phrase):
            self.fail(phrase)

    def one_of(self, *phrases: str) -> str:
        """Skip the phrase that comes next, and return it."""
        for phrase in phrases:
            if self.take(phrase):
                return phrase
        meant = "" if self.is_at_end else did_you_mean(self._source_of(self._tokens[self._at]), phrases)
        self.fail(_listed(phrases), meant)

    def name(self, what: str) -> str:
        """Read a name with its dots. A part in double quotes may have any characters that a name can have."""
        parts = [self._part(what)]
        while self._is("."):
            self._at += 1
            parts.append(self._part(f"the rest of {what}"))
        return ".".join(parts)

    def name_or_prefix(self, what: str) -> tuple[str, bool]:
        """Read a name, or the beginning of names with a star behind it (`app.ord*`, `app.*`); return whether it is that.

        Either may be a string.
        """
        if not self.is_at_end and self._tokens[self._at].kind == "string":
            text = self.string(what)
            return (text.removesuffix("*"), text.endswith("*"))
        parts = [self._part(what)]
        while self._is("."):
            self._at += 1
            if self._take_sign("*"):
                return f"{'.'.join(parts)}.", True
            parts.append(self._part(f"the rest of {what}"))
        return ".".join(parts), self._take_sign("*")

    def word(self, what: str) -> str:
        """Read a name without dots."""
        return self._part(what)

    def string(self, what: str) -> str:
        if not self.is_at_end and self._tokens[self._at].kind in ("word", "quoted") and not self._sees_constant():
            raise SqlSyntaxError(f"{what} must be in single quotes: '{self._tokens[self._at].value}'", *self.position)
        value = self.value(what, str)
        if not isinstance(value, str):
            raise SqlError(f"{what} is {value!r}; it must be a string", *self._last_position())
        return value

    def integer(self, what: str) -> int:
        value = self.value(what, int)
        if isinstance(value, bool) or not isinstance(value, int):
            raise SqlError(f"{what} is {value!r}; it must be a whole number", *self._last_position())
        return value

    def quantity(self, what: str) -> str:
        """Read a number, which may have a fraction, or a string with a unit, and return its text."""
        if not self.is_at_end and self._tokens[self._at].kind == "number":
            self._last = self._at
            self._at += 1
            return self._tokens[self._last].text
        value = self.value(what, str)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise SqlError(f"{what} is {value!r}; it must be a number, or a string with a unit", *self._last_position())
        return str(value)

    def value(self, what: str, kind_wanted: type[str] | type[int]) -> object:
        """Read a string, a number, TRUE, FALSE, NULL or a parameter."""
        self.is_placeholder = False
        self._last = self._at
        if self.is_at_end:
            self.fail(what)
        token = self._tokens[self._at]
        if token.kind == "parameter" or token.text == "?":
            if token.text and token.text != "?":
                return self._parameter(token.text, 1, kind_wanted)
            self._positional += 1
            return self._parameter(str(self._positional), 1, kind_wanted)
        if token.text == ":" and self._at + 1 < len(self._tokens):
            return self._parameter(self._tokens[self._at + 1].text, 2, kind_wanted)
        if token.kind == "string":
            if token.text[0] not in "'$":
                self.reject(f"{what} must be a plain string in single quotes", self.position)
            self._at += 1
            return token.value
        if token.kind == "number" or token.text == "-":
            return self._number(what)
        for word, constant in _CONSTANTS.items():
            if self.take(word):
                return constant
        self.fail(what)

    def expect_end(self, expected: str = "") -> None:
        if not self.is_at_end:
            self.fail(f"{expected} or the end of the statement" if expected else "the end of the statement")

    def opens(self) -> bool:
        """Skip `(` if it comes next, and return whether it did."""
        return self._take_sign("(")

    def expect_open(self) -> None:
        if not self.opens():
            self.fail("(")

    def closes(self) -> bool:
        """Skip `)` and return true, or skip a comma and return false. Nothing else may come next."""
        if self._take_sign(")"):
            return True
        if not self._take_sign(","):
            self.fail(", or )")
        return False

    def takes_comma(self) -> bool:
        return self._take_sign(",")

    def expect_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            self.fail(sign)

    def options(self, read: "ReadOption") -> dict[str, Any]:
        """Read `(name = value, ...)`. `read` is called for each value, with the name of its option and where that stands."""
        self.expect_open()
        options: dict[str, Any] = {}
        while True:
            position = self.position
            name = self.name("the name of an option").lower()
            if name in options:
                self.reject(f"option {name!r} is set twice; remove one")
            self.expect_sign("=")
            options[name] = read(self, name, position)
            if self.closes():
                return options

    def until(self, *phrases: str) -> Sequence[SqlToken]:
        """Skip and return the tokens up to one of these keywords outside of brackets, a closing bracket, or the end."""
        return self._until(phrases, is_list=False)

    def until_comma(self) -> Sequence[SqlToken]:
        """Skip and return the tokens up to a comma outside of brackets, a closing bracket, or the end."""
        return self._until((), is_list=True)

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        raise SqlSyntaxError(f"expected {expected}, found {self._found()}{hint}", *self.position)

    def comes_before(self, word: str, *ends: str) -> bool:
        """Return whether a keyword comes later, and before any of these others."""
        for token in self._tokens[self._at :]:
            if token.is_word(word.lower()):
                return True
            if token.is_word(*(end.lower() for end in ends)):
                return False
        return False

    def ends_with(self, phrase: str) -> bool:
        """Return whether these keywords come next, and nothing after them."""
        return self._after(phrase) == len(self._tokens)

    def unknown(self, expected: str, before: str = "") -> NoReturn:
        """Raise for a keyword that starts something unsupported."""
        if self.is_at_end or not self._tokens[self._at].text[:1].isalpha():
            self.fail(expected)
        word = self._source_of(self._tokens[self._at]).upper()
        hint = did_you_mean(word, expected.replace(",", " ").split())
        raise UnsupportedSqlError(f"{before}{word} is not supported; expected {before}{expected}{hint}", *self.position)

    def reject(self, message: str, position: TextPosition | None = None) -> NoReturn:
        """Raise for something that is well formed but not valid: the last name, value or keyword, or what is at `position`."""
        raise SqlError(message, *(position or self._last_position()))

    def _found(self) -> str:
        if self.is_at_end:
            return "the end of the statement"
        return "something else" if self.conceals else repr(self._source_of(self._tokens[self._at]))

    def _source_of(self, token: SqlToken) -> str:
        return self._text[token.start : token.end]

    def _last_position(self) -> TextPosition:
        return position_at(self._text, self._tokens[self._last].start)

    def _after(self, phrase: str) -> int | None:
        """Return the index after these keywords and signs, or `None`."""
        at = self._at
        for wanted in phrase.split():
            if at >= len(self._tokens):
                return None
            token = self._tokens[at]
            if token.kind not in ("word", "operator") or token.text.upper() != wanted:
                return None
            at += 1
        return at

    def _part(self, what: str) -> str:
        self._last = self._at
        if self.is_at_end:
            self.fail(what)
        token = self._tokens[self._at]
        if token.kind not in ("word", "quoted") or not token.value:
            self.fail(what)
        if token.kind == "word" and not _WORD.fullmatch(token.text):
            self.fail(what)
        self._at += 1
        return token.value

    def _number(self, what: str) -> int | str:
        negative = self._take_sign("-")
        if self.is_at_end or self._tokens[self._at].kind != "number":
            self.fail(what)
        written = self._tokens[self._at].text
        self._at += 1
        if not written.isdigit() or len(written) > len(str(1 << 63)):
            shown = "a number" if self.conceals else written[:40]
            raise SqlError(f"{what} is {shown}; it must be a whole number below 2^63", *self._last_position())
        return -int(written) if negative else int(written)

    def _parameter(self, name: str, length: int, kind_wanted: type[str] | type[int]) -> object:
        self._at += length
        self.parameters.append(name)
        if self._values is None:
            self.is_placeholder = True
            return "1" if kind_wanted is str else 1
        return self._values[name]

    def _until(self, phrases: Sequence[str], *, is_list: bool) -> Sequence[SqlToken]:
        start = self._at
        depth = 0
        while not self.is_at_end:
            is_end = self._is(*_CLOSING) or (is_list and self._is(","))
            if depth == 0 and (is_end or any(self.sees(phrase) for phrase in phrases)):
                break
            depth += self._is(*_OPENING) - self._is(*_CLOSING)
            self._at += 1
        if self._at == start:
            self.fail("an expression")
        return self._tokens[start : self._at]

    def _sees_constant(self) -> bool:
        return any(self.sees(word) for word in _CONSTANTS)

    def _is(self, *signs: str) -> bool:
        return not self.is_at_end and self._tokens[self._at].kind == "operator" and self._tokens[self._at].text in signs

    def _take_sign(self, sign: str) -> bool:
        found = self._is(sign)
        self._at += found
        return found


ReadOption = Callable[[TokenReader, str, TextPosition], object]


def _listed(phrases: Sequence[str]) -> str:
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}" if len(phrases) > 1 else phrases[0]
