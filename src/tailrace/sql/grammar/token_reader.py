"""A statement read word by word: what the grammar of our own statements is written with.

A keyword is a word without quotes, in any case. Whatever does not fit raises an error that says where it stands and what was
expected. Where a value may stand, a parameter may; without values to fill in, a stand-in is taken, so that a text can be
checked before its values are known.
"""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.syntax_trees import TextPosition, position_at, position_of_token

_QUOTED = {TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEREDOC_STRING, TokenType.NUMBER, TokenType.BYTE_STRING}
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET}

Values = Mapping[str, object]
"""Parameters of one statement by name; those of `?` are `1`, `2` and so on."""


class TokenReader:
    def __init__(self, tokens: Sequence[Token], text: str, values: Values | None = None) -> None:
        self._tokens = tokens
        self._text = text
        self._values = values
        self._at = 0
        self._last = 0
        self._positional = 0
        self.parameters: list[str] = []
        """Parameters met so far, by name."""
        self.is_guess = False
        """Whether the last value is a stand-in for a parameter that is not known yet."""

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def place(self) -> TextPosition:
        if not self.is_at_end:
            return position_of_token(self._tokens[self._at], self._text)
        return position_at(self._text, self._tokens[-1].end + 1)

    def sees(self, phrase: str) -> bool:
        """Whether these keywords come next."""
        return self._after(phrase) is not None

    def take(self, phrase: str) -> bool:
        """Step over these keywords if they come next."""
        after = self._after(phrase)
        if after is not None:
            self._last, self._at = self._at, after
        return after is not None

    def expect(self, phrase: str) -> None:
        if not self.take(phrase):
            self.fail(phrase)

    def one_of(self, *phrases: str) -> str:
        """Step over the one that comes next, and say which it was."""
        for phrase in phrases:
            if self.take(phrase):
                return phrase
        meant = "" if self.is_at_end else did_you_mean(self._source_of(self._tokens[self._at]), phrases)
        self.fail(_listed(phrases), meant)

    def name(self, what: str) -> str:
        """A name with its dots. A part in double quotes may hold whatever a name can."""
        parts = [self._part(what)]
        while self._is(TokenType.DOT):
            self._at += 1
            parts.append(self._part(f"the rest of {what}"))
        return ".".join(parts)

    def word(self, what: str) -> str:
        """One name without dots."""
        return self._part(what)

    def string(self, what: str) -> str:
        if not self.is_at_end and self._tokens[self._at].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            raise SqlSyntaxError(f"{what} stands in single quotes: '{self._tokens[self._at].text}'", *self.place)
        value = self.value(what, str)
        if not isinstance(value, str):
            raise SqlError(f"{what} is {value!r}; it must be a text", *self._last_place())
        return value

    def integer(self, what: str) -> int:
        value = self.value(what, int)
        if isinstance(value, bool) or not isinstance(value, int):
            raise SqlError(f"{what} is {value!r}; it must be a whole number", *self._last_place())
        return value

    def value(self, what: str, stand_in: type[str] | type[int]) -> object:
        """A text, a number, TRUE, FALSE, NULL or a parameter."""
        self.is_guess = False
        self._last = self._at
        if self.is_at_end:
            self.fail(what)
        token = self._tokens[self._at]
        kind = token.token_type
        if kind is TokenType.PLACEHOLDER:
            self._positional += 1
            return self._parameter(str(self._positional), 1, stand_in)
        if kind is TokenType.COLON and self._at + 1 < len(self._tokens):
            return self._parameter(self._tokens[self._at + 1].text, 2, stand_in)
        if kind in (TokenType.STRING, TokenType.HEREDOC_STRING):
            self._at += 1
            return token.text
        if kind is TokenType.DASH or kind is TokenType.NUMBER:
            return self._number(what)
        for word, constant in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.take(word):
                return constant
        self.fail(what)

    def step_over_constant(self, what: str) -> None:
        """A text, any number, TRUE, FALSE or NULL."""
        if self._take_kind(TokenType.DASH):
            self.expect_sign(TokenType.NUMBER, what)
        elif not (
            self._take_kind(TokenType.NUMBER)
            or self._take_kind(TokenType.STRING)
            or any(self.take(word) for word in ("TRUE", "FALSE", "NULL"))
        ):
            self.fail(what)

    def expect_end(self, expected: str = "") -> None:
        if not self.is_at_end:
            self.fail(f"{expected} or the end of the statement" if expected else "the end of the statement")

    def opens(self) -> bool:
        """Step over `(` if it comes next."""
        return self._take_kind(TokenType.L_PAREN)

    def expect_open(self) -> None:
        if not self.opens():
            self.fail("(")

    def closes(self) -> bool:
        """Step over `)` if it comes next; else a comma must come."""
        if self._take_kind(TokenType.R_PAREN):
            return True
        if not self._take_kind(TokenType.COMMA):
            self.fail(", or )")
        return False

    def takes_comma(self) -> bool:
        return self._take_kind(TokenType.COMMA)

    def expect_sign(self, kind: TokenType, sign: str) -> None:
        if not self._take_kind(kind):
            self.fail(sign)

    def takes_brackets(self) -> bool:
        """Step over `[]` if it comes next."""
        if not self._take_kind(TokenType.L_BRACKET):
            return False
        self.expect_sign(TokenType.R_BRACKET, "]")
        return True

    def until(self, *phrases: str) -> Sequence[Token]:
        """Step over everything up to one of these keywords outside of brackets, a closing bracket, or the end."""
        return self._until(phrases, is_list=False)

    def until_comma(self) -> Sequence[Token]:
        """The same up to a comma outside of brackets."""
        return self._until((), is_list=True)

    def since(self, start: int) -> str:
        """The text from a mark up to here."""
        return self._text[self._tokens[start].start : self._tokens[self._at - 1].end + 1]

    def mark(self) -> int:
        return self._at

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        raise SqlSyntaxError(f"expected {expected}, found {self._found()}{hint}", *self.place)

    def ends_with(self, phrase: str) -> bool:
        """Whether these keywords come next, and nothing after them."""
        return self._after(phrase) == len(self._tokens)

    def unknown(self, expected: str, before: str = "") -> NoReturn:
        """The next word begins something that there is not."""
        if self.is_at_end or not self._tokens[self._at].text[:1].isalpha():
            self.fail(expected)
        word = self._source_of(self._tokens[self._at]).upper()
        hint = did_you_mean(word, expected.replace(",", " ").split())
        raise UnsupportedSqlError(f"{before}{word} is not supported; expected {before}{expected}{hint}", *self.place)

    def refuse(self, message: str, place: TextPosition | None = None) -> NoReturn:
        """Something is well written and means nothing good: the last name, value or keyword, or what is at `place`."""
        raise SqlError(message, *(place or self._last_place()))

    def _found(self) -> str:
        return "the end of the statement" if self.is_at_end else repr(self._source_of(self._tokens[self._at]))

    def _source_of(self, token: Token) -> str:
        return self._text[token.start : token.end + 1]

    def _last_place(self) -> TextPosition:
        return position_of_token(self._tokens[self._last], self._text)

    def _after(self, phrase: str) -> int | None:
        """The index behind these keywords, some of which sqlglot makes one token."""
        wanted = phrase.split()
        at = self._at
        while wanted:
            if at >= len(self._tokens) or self._tokens[at].token_type in _QUOTED:
                return None
            reader = self._tokens[at].text.upper().split()
            if not reader or reader != wanted[: len(reader)]:
                return None
            wanted = wanted[len(reader) :]
            at += 1
        return at

    def _part(self, what: str) -> str:
        self._last = self._at
        if self.is_at_end:
            self.fail(what)
        token = self._tokens[self._at]
        is_name = token.token_type is TokenType.IDENTIFIER or token.text.replace("_", "a").isalnum()
        if not is_name or token.token_type in _QUOTED - {TokenType.IDENTIFIER}:
            self.fail(what)
        self._at += 1
        return token.text

    def _number(self, what: str) -> int | str:
        negative = self._take_kind(TokenType.DASH)
        if not self._is(TokenType.NUMBER):
            self.fail(what)
        written = self._tokens[self._at].text
        self._at += 1
        if not written.isdigit() or len(written) > len(str(1 << 63)):
            raise SqlError(f"{what} is {written[:40]}; it must be a whole number below 2^63", *self._last_place())
        return -int(written) if negative else int(written)

    def _parameter(self, name: str, length: int, stand_in: type[str] | type[int]) -> object:
        self._at += length
        self.parameters.append(name)
        if self._values is None:
            self.is_guess = True
            return "1" if stand_in is str else 1
        return self._values[name]

    def _until(self, phrases: Sequence[str], *, is_list: bool) -> Sequence[Token]:
        start = self._at
        depth = 0
        while not self.is_at_end:
            kind = self._tokens[self._at].token_type
            if depth == 0 and (
                kind in _CLOSING or (is_list and kind is TokenType.COMMA) or any(self.sees(phrase) for phrase in phrases)
            ):
                break
            depth += (kind in _OPENING) - (kind in _CLOSING)
            self._at += 1
        if self._at == start:
            self.fail("an expression")
        return self._tokens[start : self._at]

    def _is(self, kind: TokenType) -> bool:
        return not self.is_at_end and self._tokens[self._at].token_type is kind

    def _take_kind(self, kind: TokenType) -> bool:
        found = self._is(kind)
        self._at += found
        return found


def _listed(phrases: Sequence[str]) -> str:
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}" if len(phrases) > 1 else phrases[0]
