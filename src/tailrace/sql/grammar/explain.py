"""EXPLAIN in front of a statement.

EXPLAIN [ANALYZE] statement
EXPLAIN (option [value], ...) statement

The options are PostgreSQL's: ANALYZE, TIMING and COSTS with TRUE, ON, 1, FALSE, OFF or 0, and FORMAT with TEXT or JSON. There
are no costs to show, so COSTS can only be turned off.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.statements import CreateTableAsStatement, ExplainStatement, Query, Statement, Write
from tailrace.sql.text_positions import position_at

_BLANK = re.compile(r"[^\r\n]")
_ON = ("true", "on", "1")
_OFF = ("false", "off", "0")
_OTHER_OPTIONS = ("verbose", "settings", "generic_plan", "buffers", "serialize", "wal", "summary", "memory")
_INVALID_PARAMETER = "22023"


class ExplainPrefix(NamedTuple):
    """What stands before the statement that is explained."""

    start: int
    end: int
    """Where the statement starts and ends in the text, with EXPLAIN."""
    analyze: bool = False
    format: Literal["text", "json"] = "text"
    timing: bool | None = None
    """`None` if it is not said; then it is as ANALYZE is."""


class SplitText(NamedTuple):
    """A text whose EXPLAINs are replaced by blanks, so that everything else is where it was."""

    text: str
    parts: Sequence[Sequence[SqlToken]]
    """The tokens of each statement, without EXPLAIN."""
    prefixes: Sequence[ExplainPrefix | None]


def without_explain(text: str, parts: Sequence[Sequence[SqlToken]]) -> SplitText:
    """Return the text without its EXPLAINs. That of a route is left as it is."""
    blanked = text
    left: list[Sequence[SqlToken]] = []
    prefixes: list[ExplainPrefix | None] = []
    for part in parts:
        if not part[0].is_word("explain") or (len(part) > 1 and part[1].is_word("alter")):
            left.append(part)
            prefixes.append(None)
            continue
        prefix, at = _prefix(part, text)
        if at == len(part):
            raise SqlSyntaxError("expected the statement to explain, found nothing", *position_at(text, part[-1].end))
        end = part[at].start
        blanked = blanked[: prefix.start] + _BLANK.sub(" ", blanked[prefix.start : end]) + blanked[end:]
        left.append(part[at:])
        prefixes.append(prefix)
    return SplitText(blanked, left, prefixes)


def explained(statement: Statement, prefix: ExplainPrefix | None, text: str) -> Statement:
    """Return the statement as it was written: with EXPLAIN around it, if that stood before it."""
    if prefix is None:
        return statement
    line, column = position_at(text, prefix.start)
    if not isinstance(statement, EXPLAINABLE):
        raise UnsupportedSqlError(
            "this statement can't be explained; EXPLAIN supports SELECT, VALUES, INSERT, UPDATE, DELETE, CREATE TABLE AS and"
            " ALTER TOPIC ... ADD SOURCE",
            statement.line,
            statement.column,
        )
    return ExplainStatement(
        text=text[prefix.start : prefix.end],
        line=line,
        column=column,
        parameters=statement.parameters,
        statement=statement,
        analyze=prefix.analyze,
        format=prefix.format,
        timing=prefix.analyze if prefix.timing is None else prefix.timing,
    )


EXPLAINABLE = (Query, Write, CreateTableAsStatement)


def _prefix(part: Sequence[SqlToken], text: str) -> tuple[ExplainPrefix, int]:
    """Return the options, and the index of the token behind them."""
    prefix = ExplainPrefix(part[0].start, part[-1].end)
    at = 1
    if at < len(part) and part[at].text == "(" and not _is_query(part, at):
        return _options(prefix, part, text)
    while at < len(part) and part[at].is_word("analyze", "analyse", "verbose"):
        if part[at].is_word("verbose"):
            raise UnsupportedSqlError("EXPLAIN VERBOSE is not supported; leave it out", *position_at(text, part[at].start))
        prefix = prefix._replace(analyze=True)
        at += 1
    return prefix, at


def _is_query(part: Sequence[SqlToken], at: int) -> bool:
    following = next((token for token in part[at:] if token.text != "("), None)
    return following is not None and following.is_word("select", "values", "with", "table")


def _options(prefix: ExplainPrefix, part: Sequence[SqlToken], text: str) -> tuple[ExplainPrefix, int]:
    at = 2
    while True:
        words: list[SqlToken] = []
        while at < len(part) and part[at].text not in (",", ")"):
            words.append(part[at])
            at += 1
        if at == len(part) or not words or len(words) > 2:
            place = position_at(text, part[min(at, len(part) - 1)].start)
            raise SqlSyntaxError("expected an option of EXPLAIN such as ANALYZE or FORMAT JSON, then a comma or )", *place)
        prefix = _with_option(prefix, words, text)
        at += 1
        if part[at - 1].text == ")":
            break
    if prefix.timing and not prefix.analyze:
        raise SqlError("EXPLAIN option TIMING requires ANALYZE", *position_at(text, prefix.start), sqlstate=_INVALID_PARAMETER)
    return prefix, at


def _with_option(prefix: ExplainPrefix, words: Sequence[SqlToken], text: str) -> ExplainPrefix:
    name = words[0].text.lower()
    value = words[1].text.lower().strip("'\"") if len(words) > 1 else None
    place = position_at(text, words[0].start)
    if name == "format":
        if value not in ("text", "json"):
            known = value in ("xml", "yaml")
            kind = UnsupportedSqlError if known else SqlError
            message = f'unrecognized value for EXPLAIN option "format": "{value}"; use TEXT or JSON'
            raise kind(message, *place, sqlstate=None if known else _INVALID_PARAMETER)
        return prefix._replace(format=value)  # type: ignore[arg-type]
    if name in ("analyze", "analyse"):
        return prefix._replace(analyze=_boolean(name, value, place))
    if name == "timing":
        return prefix._replace(timing=_boolean(name, value, place))
    if name == "costs" and not _boolean(name, value, place):
        return prefix
    if name == "costs":
        raise UnsupportedSqlError("there are no costs to show; leave COSTS out", *place)
    if name in _OTHER_OPTIONS:
        raise UnsupportedSqlError(f"EXPLAIN option {name.upper()} is not supported; leave it out", *place)
    raise SqlSyntaxError(f'unrecognized EXPLAIN option "{name}"', *place)


def _boolean(name: str, value: str | None, place: tuple[int, int]) -> bool:
    if value is None or value in _ON:
        return True
    if value in _OFF:
        return False
    raise SqlSyntaxError(f"{name} requires a Boolean value", *place)
