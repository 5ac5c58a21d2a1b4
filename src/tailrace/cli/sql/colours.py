"""Colours for SQL as it is typed."""

from typing import ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text

from tailrace.cli.sql.words import FUNCTIONS, KEYWORDS, TYPES


class TailraceLexer(RegexLexer):  # type: ignore[misc]
    name = "Tailrace SQL"
    flags = 2  # re.IGNORECASE; the base class wants a plain number
    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"\s+", Text),
            (r"--.*?$", Comment),
            (r"/\*[\s\S]*?(\*/|$)", Comment),
            (r"'([^']|'')*('|$)", String),
            (r'"([^"]|"")*("|$)', Name),
            (words(KEYWORDS, prefix=r"(?<![\w.])", suffix=r"\b(?!\.)"), Keyword),
            (words(TYPES, prefix=r"(?<![\w.])", suffix=r"\b(?!\.)"), Keyword.Type),
            (words(FUNCTIONS, prefix=r"(?<![\w.])", suffix=r"(?=\s*\()"), Name.Function),
            (r"\d+(\.\d+)?", Number),
            (r"[:?]\w*", Name.Variable),
            (r"\w+", Name),
            (r".", Punctuation),
        ]
    }
