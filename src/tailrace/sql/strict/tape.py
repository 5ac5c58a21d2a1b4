"""The words of a text, one after the other, for a grammar that reads them once and never goes back."""

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from tailrace.model.errors import SqlSyntaxError
from tailrace.sql.near_names import CLAUSES, did_you_mean
from tailrace.sql.places import place_at, place_of_token

_TEXTS = frozenset(
    (
        TokenType.STRING,
        TokenType.HEREDOC_STRING,
        TokenType.NATIONAL_STRING,
        TokenType.RAW_STRING,
        TokenType.HEX_STRING,
        TokenType.BIT_STRING,
        TokenType.BYTE_STRING,
        TokenType.UNICODE_STRING,
    )
)

_SECOND_HALVES = {TokenType.LT: TokenType.LT, TokenType.GT: TokenType.GT, TokenType.DOT: TokenType.NUMBER}


class Kind:
    """What a word is, apart from what it says."""

    WORD = "word"
    QUOTED = "quoted"
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


class Word(NamedTuple):
    said: str
    """In capitals; empty at the end and for what is quoted, which is no keyword."""
    kind: str
    token: Token | None


_END = Word("", Kind.END, None)


class Tape:
    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._words = [*_words(tokens), _END, _END]
        self._at = 0

    @property
    def word(self) -> Word:
        return self._words[self._at]

    @property
    def next(self) -> Word:
        return self._words[self._at + 1]

    def step(self) -> Word:
        word = self._words[self._at]
        self._at += word.kind is not Kind.END
        return word

    def sees(self, said: str) -> bool:
        return self._words[self._at].said == said

    def take(self, said: str, following: str | None = None) -> bool:
        """Step over this word, or over these two, if they come next."""
        if self._words[self._at].said != said:
            return False
        if following is None:
            self._at += 1
            return True
        if self._words[self._at + 1].said != following:
            return False
        self._at += 2
        return True

    def take_any(self, said: Collection[str]) -> bool:
        if self.word.said not in said:
            return False
        self._at += 1
        return True

    def expect(self, said: str) -> None:
        if not self.take(said):
            self.fail(said)

    def expect_end(self) -> None:
        if self.word.kind is not Kind.END:
            self.fail("an operator, a clause or the end of the statement", did_you_mean(self.word.said, CLAUSES))

    def follows_line_break(self) -> bool:
        """Whether the word that comes next stands in a line of its own."""
        before, token = self._words[self._at - 1].token, self.word.token
        return before is not None and token is not None and "\n" in self._text[before.end + 1 : token.start]

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        token = self.word.token
        if token is None:
            place = place_at(self._text, self._tokens[-1].end + 1)
            raise SqlSyntaxError(f"expected {expected}, found the end of the statement", *place)
        raise SqlSyntaxError(f"expected {expected}, found {token.text!r}{hint}", *place_of_token(token, self._text))


def _words(tokens: Sequence[Token]) -> Iterator[Word]:
    """sqlglot takes some pairs, such as GROUP BY, for one token, and `<<` and `.5` for two."""
    for token, following in zip_longest(tokens, tokens[1:]):
        kind = token.token_type
        second_half = _SECOND_HALVES.get(kind)
        if following is not None and following.token_type is second_half and following.start == token.end + 1:
            continue
        if kind is TokenType.IDENTIFIER:
            yield Word("", Kind.QUOTED, token)
        elif kind in _TEXTS:
            yield Word("", Kind.TEXT, token)
        elif kind is TokenType.NUMBER:
            yield Word("", Kind.NUMBER, token)
        elif token.text[:1].isalpha() or token.text[:1] in "_$":
            for said in token.text.upper().split():
                yield Word(said, Kind.WORD, token)
        else:
            yield Word(token.text, Kind.SIGN, token)
