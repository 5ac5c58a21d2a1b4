"""LIKE, which in SQLite does not tell `a` from `A`: as GLOB, which does, or by code of our own where the pattern is computed.

Both take time in proportion to text and pattern at most, whatever the pattern: no text can make them try all ways to match.
"""

import re
from collections.abc import Iterator

from tailrace.model.errors import SqlError

_SPECIAL = "*?["


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
    pieces = [""]
    for character, is_wild in _characters(pattern, escape):
        if is_wild and character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if is_wild else re.escape(character)
    first, *others = (re.compile(piece, re.DOTALL) for piece in pieces)
    if not others:
        return first.fullmatch(text) is not None
    found = first.match(text)
    for piece in others[:-1]:
        if found is None:
            return False
        found = piece.search(text, found.end())
    if found is None:
        return False
    last = re.compile(f"(?:{others[-1].pattern})\\Z", re.DOTALL)
    return last.search(text, found.end()) is not None


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
