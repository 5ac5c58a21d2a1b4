"""Splits a text into PostgreSQL's tokens, as far as statements and parameters have to be told apart.

PostgreSQL's parser knows `$1` alone. What Tailrace adds, `?` and `:name`, is a parameter where an operand is expected; where an
operator is, `?` is PostgreSQL's operator for JSON and `:` separates the bounds of an array slice.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tailrace.model.errors import SqlSyntaxError
from tailrace.sql.text_positions import position_at

TokenKind = Literal["word", "quoted", "string", "number", "parameter", "operator", "end"]

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f\v]+|--[^\r\n]*)
    |(?P<comment>/\*)
    |(?P<string>[uU]&'(?:[^']|'')*'|[bBxXnN]?'(?:[^']|'')*'|[eE]'(?:[^'\\]|''|\\.)*')
    |(?P<unclosed>[eE]')
    |(?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$)
    |(?P<parameter>\$\d+)
    |(?P<quoted>(?:[uU]&)?"(?:[^"]|"")*")
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*)
    |(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
    |(?P<cast>::)
    |(?P<operator>[+\-*/<>=~!@\#%^&|`?]+)
    |(?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NAME = re.compile(r":([A-Za-z_][\w$]*)")
_BEFORE_OPERAND_TEXT = """
    all and any array as asymmetric between by case cross default distinct else escape except fetch filter first from full
    group having ilike in inner intersect is join lateral left like limit natural next not offset on only or order outer
    over overlaps range returning right row rows select similar some symmetric then to union using values when where window
    with within
"""
_BEFORE_OPERAND = frozenset(_BEFORE_OPERAND_TEXT.split())
"""Keywords after which an operand is expected. After any other word, an operator is."""
_JSON_OPERATORS = ("?|", "?&", "?")


class SqlToken(NamedTuple):
    kind: TokenKind
    text: str
    """As it was written. That of a parameter is its name: `$1` and `:name` without their sign, empty for `?`."""
    start: int
    end: int
    """The characters in the text, from `start` up to but without `end`."""

    @property
    def value(self) -> str:
        """The content of a string without its quotes, or a name as it was written."""
        if self.kind == "string" and self.text[0] == "$":
            mark = self.text.index("$", 1) + 1
            return self.text[mark:-mark]
        if self.kind in ("string", "quoted") and self.text[0] in "'\"":
            return self.text[1:-1].replace(2 * self.text[0], self.text[0])
        return self.text

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def read_tokens(text: str) -> list[SqlToken]:
    """Return the tokens of a text. Raises `SqlSyntaxError` for a string, name or comment that is not closed."""
    tokens: list[SqlToken] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise SqlSyntaxError(f"{text[at]!r} is not valid in SQL", *position_at(text, at))
        kind, end = found.lastgroup, found.end()
        if kind == "blank":
            at = end
            continue
        if kind == "unclosed":
            # Without its E it might be a closed string, and what follows another statement.
            raise _not_closed(text, at, "'")
        if kind == "comment":
            at = _end_of_comment(text, at)
            continue
        if kind == "dollar":
            end = text.find(found.group(), end)
            if end < 0:
                raise _not_closed(text, at, found.group())
            end += len(found.group())
            token = SqlToken("string", text[at:end], at, end)
        elif kind == "parameter":
            token = SqlToken("parameter", text[at + 1 : end], at, end)
        elif kind in ("operator", "other"):
            token = _operator(text, at, end, tokens)
        elif kind == "cast":
            token = SqlToken("operator", "::", at, end)
        else:
            token = SqlToken(kind, found.group(), at, end)  # type: ignore[arg-type]
        tokens.append(token)
        at = token.end
    return tokens


def _operator(text: str, start: int, end: int, before: Sequence[SqlToken]) -> SqlToken:
    written = text[start:end]
    after_operand = bool(before) and ends_operand(before[-1])
    if written[0] in "'\"":
        raise _not_closed(text, start, written[0])
    if written == ";":
        return SqlToken("end", written, start, end)
    if written == ":" and not after_operand:
        name = _NAME.match(text, start)
        if name is not None:
            return SqlToken("parameter", name[1], start, name.end())
    if written[0] == "?":
        if not after_operand:
            return SqlToken("parameter", "", start, start + 1)
        known = next(one for one in _JSON_OPERATORS if written.startswith(one))
        return SqlToken("operator", known, start, start + len(known))
    for mark in ("--", "/*"):
        cut = written.find(mark)
        if cut > 0:
            written = written[:cut]
    if "?" in written and written != "@?":
        written = written[: written.index("?")]
    return SqlToken("operator", written, start, start + len(written))


def ends_operand(token: SqlToken) -> bool:
    """Return whether an operator may follow this token."""
    if token.kind == "word":
        return token.text.lower() not in _BEFORE_OPERAND
    return token.kind in ("quoted", "string", "number", "parameter") or token.text in (")", "]")


def _end_of_comment(text: str, start: int) -> int:
    """Return the end of a comment, in which others may be nested."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    raise SqlSyntaxError("expected the end of a comment, found the end of the text", *position_at(text, start))


def _not_closed(text: str, start: int, closing: str) -> SqlSyntaxError:
    return SqlSyntaxError(
        f"what starts here is not closed; expected {closing}, found the end of the text", *position_at(text, start)
    )
