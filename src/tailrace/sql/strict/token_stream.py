"""The tokens of a text for a grammar that reads them once, without going back; and the grammar of names, lists and types."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from tailrace.model.errors import SqlSyntaxError
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.syntax_trees import position_at, position_of_token

CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "UNION", "VALUES", "SET", "RETURNING")
"""The words that may continue a statement."""


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


_RESERVED = """
    ALL AND ANY AS ASC BETWEEN BY CASE CROSS DESC DISTINCT DO ELSE END ESCAPE EXCEPT FETCH FOR FROM FULL GROUP HAVING ILIKE IN
    INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NATURAL NOT ON OR ORDER PLACING QUALIFY RETURNING RIGHT SELECT SET
    SIMILAR SOME THEN UNION USING VALUES WHEN WHERE WINDOW WITH
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that can't be the name of a column, nor its alias without AS."""
_NO_ALIAS = RESERVED | {
    "OFFSET",
    "COLLATE",
    "ISNULL",
    "NOTNULL",
    "OVERLAPS",
    "FILTER",
    "OVER",
    "WITHIN",
    "AT",
    "NULLS",
    "NULL",
    "TRUE",
    "FALSE",
}


class TokenKind:
    """The kinds of tokens."""

    WORD = "word"
    QUOTED = "quoted"
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


class GrammarToken(NamedTuple):
    keyword: str
    """In capitals; empty at the end and for quoted tokens, which are not keywords."""
    kind: str
    source: Token | None


_END = GrammarToken("", TokenKind.END, None)


class TokenStream:
    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._grammar_tokens = [*_grammar_tokens(tokens), _END, _END]
        self._at = 0

    @property
    def current(self) -> GrammarToken:
        return self._grammar_tokens[self._at]

    @property
    def next(self) -> GrammarToken:
        return self._grammar_tokens[self._at + 1]

    def step(self) -> GrammarToken:
        token = self._grammar_tokens[self._at]
        self._at += token.kind is not TokenKind.END
        return token

    def sees(self, keyword: str) -> bool:
        return self._grammar_tokens[self._at].keyword == keyword

    def take(self, keyword: str, following: str | None = None) -> bool:
        """Skip this token, or these two, if they come next, and return whether they did."""
        if self._grammar_tokens[self._at].keyword != keyword:
            return False
        if following is None:
            self._at += 1
            return True
        if self._grammar_tokens[self._at + 1].keyword != following:
            return False
        self._at += 2
        return True

    def take_any(self, keywords: Collection[str]) -> bool:
        if self.current.keyword not in keywords:
            return False
        self._at += 1
        return True

    def expect(self, keyword: str) -> None:
        if not self.take(keyword):
            self.fail(keyword)

    def expect_end(self) -> None:
        if self.current.kind is not TokenKind.END:
            self.fail("an operator, a clause or the end of the statement", did_you_mean(self.current.keyword, CLAUSES))

    def follows_line_break(self) -> bool:
        """Return whether there is a line break before the next token."""
        before, token = self._grammar_tokens[self._at - 1].source, self.current.source
        return before is not None and token is not None and "\n" in self._text[before.end + 1 : token.start]

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        token = self.current.source
        if token is None:
            position = position_at(self._text, self._tokens[-1].end + 1)
            raise SqlSyntaxError(f"expected {expected}, found the end of the statement", *position)
        raise SqlSyntaxError(f"expected {expected}, found {token.text!r}{hint}", *position_of_token(token, self._text))


def _grammar_tokens(tokens: Sequence[Token]) -> Iterator[GrammarToken]:
    """Return the tokens of the grammar. sqlglot combines some pairs, such as GROUP BY, and splits `<<` and `.5` in two."""
    for token, following in zip_longest(tokens, tokens[1:]):
        kind = token.token_type
        second_half = _SECOND_HALVES.get(kind)
        if following is not None and following.token_type is second_half and following.start == token.end + 1:
            continue
        if kind is TokenType.IDENTIFIER:
            yield GrammarToken("", TokenKind.QUOTED, token)
        elif kind in _TEXTS:
            yield GrammarToken("", TokenKind.TEXT, token)
        elif kind is TokenType.NUMBER:
            yield GrammarToken("", TokenKind.NUMBER, token)
        elif token.text[:1].isalpha() or token.text[:1] in "_$":
            for keyword in token.text.upper().split():
                yield GrammarToken(keyword, TokenKind.WORD, token)
        else:
            yield GrammarToken(token.text, TokenKind.SIGN, token)


class NameGrammar:
    def __init__(self, stream: TokenStream) -> None:
        self._stream = stream

    def listed(self, item: Callable[[], None]) -> None:
        """Read one or more items, separated by commas."""
        item()
        while self._stream.take(","):
            item()

    def bracketed(self, item: Callable[[], None]) -> None:
        self._stream.expect("(")
        self.listed(item)
        self._stream.expect(")")

    def name(self, what: str = "a name") -> None:
        token = self._stream.current
        if token.kind is TokenKind.QUOTED or (token.kind is TokenKind.WORD and token.keyword not in RESERVED):
            self._stream.step()
        else:
            self._stream.fail(what)

    def dotted(self, what: str) -> None:
        self.name(what)
        while self._stream.take("."):
            self.part()

    def part(self) -> None:
        """Read the part of a name after a dot, where every token is a name."""
        if self._stream.current.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            self._stream.fail("a name after the dot")
        self._stream.step()

    def alias(self) -> bool:
        """Read `[AS] name` if it comes next, and return whether it did."""
        stream = self._stream
        if stream.take("AS"):
            if stream.current.kind not in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.TEXT):
                stream.fail("a name after AS")
            stream.step()
            return True
        token = stream.current
        if token.kind is TokenKind.QUOTED or (token.kind is TokenKind.WORD and token.keyword not in _NO_ALIAS):
            stream.step()
            return True
        return False

    def type_(self) -> None:
        stream = self._stream
        if stream.current.kind not in (TokenKind.WORD, TokenKind.QUOTED) or stream.current.keyword in RESERVED:
            stream.fail("a type")
        stream.step()
        while stream.take("."):
            self.part()
        stream.take_any(("PRECISION", "VARYING"))
        if stream.sees("("):
            self._within_type()
        if stream.take("WITH") or stream.take("WITHOUT"):
            stream.take("LOCAL")
            stream.expect("TIME")
            stream.expect("ZONE")
        while stream.take("["):
            if stream.current.kind is TokenKind.NUMBER:
                stream.step()
            stream.expect("]")
        stream.take("ARRAY")

    def _within_type(self) -> None:
        """Read lengths, or the fields of a struct."""
        stream = self._stream
        stream.expect("(")
        self.listed(self._of_type)
        stream.expect(")")

    def _of_type(self) -> None:
        stream = self._stream
        if stream.current.kind is TokenKind.NUMBER:
            stream.step()
            return
        self.type_()
        if stream.current.kind in (TokenKind.WORD, TokenKind.QUOTED):
            self.type_()
