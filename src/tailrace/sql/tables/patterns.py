"""LIKE, which in SQLite does not tell `a` from `A`: as GLOB, which does, or by code of our own where the pattern is computed.

Both take time in proportion to text and pattern at most, whatever the pattern: no text can make them try all ways to match.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.model.errors import SqlError

_SPECIAL = "*?["
_STEPS_AT_A_STRETCH = 1_000_000
_MOST_STEPS = 1_000_000_000
"""Characters of a text times those of a piece of the pattern: a few seconds."""


def glob_of_like(pattern: str, escape: str) -> str:
    parts = []
    for character, is_wild in _characters(pattern, escape):
        if is_wild:
            parts.append("*" if character == "%" else "?")
        else:
            parts.append(f"[{character}]" if character in _SPECIAL else character)
    return "".join(parts)


def is_like(text: str, pattern: str, escape: str) -> bool:
    """Each piece between two `%` is taken where it is found first: if that does not lead to a match, nothing does."""
    pieces: list[list[str]] = [[]]
    for character, is_wild in _characters(pattern, escape):
        if is_wild and character == "%":
            pieces.append([])
        else:
            pieces[-1].append("." if is_wild else re.escape(character))
    if len(text) * max(map(len, pieces)) > _MOST_STEPS:
        raise SqlError(f"a pattern of {len(pattern)} characters is too long for a text of {len(text)}")
    first, *others = (_Piece(re.compile("".join(piece), re.DOTALL), len(piece)) for piece in pieces)
    if not others:
        return first.expression.fullmatch(text) is not None
    if first.expression.match(text) is None:
        return False
    at = first.width
    for piece in others[:-1]:
        found = _end_of_first(piece, text, at)
        if found is None:
            return False
        at = found
    start = len(text) - others[-1].width
    return start >= at and others[-1].expression.fullmatch(text, start) is not None


class _Piece(NamedTuple):
    """What stands between two `%`, which is always of the same length."""

    expression: re.Pattern[str]
    width: int


def _end_of_first(piece: _Piece, text: str, at: int) -> int | None:
    """Searched in parts, because a search does not let go of the interpreter."""
    stride = max(1, _STEPS_AT_A_STRETCH // max(1, piece.width))
    for start in range(at, len(text) - piece.width + 1, stride):
        found = piece.expression.search(text, start, start + stride + piece.width - 1)
        if found is not None:
            return found.end()
    return None


def _characters(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Each character that the pattern asks for, and whether it is a wild card."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character:
                raise SqlError(f"the pattern {pattern!r} ends with its escape character; double it")
            yield character, False
        else:
            yield character, character in "%_"
