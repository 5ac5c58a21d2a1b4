"""LIKE as GLOB: SQLite's LIKE does not tell `a` from `A`, its GLOB does, and can use an index."""

from tailrace.model.errors import SqlError

_SPECIAL = "*?["


def glob_of_like(pattern: str, escape: str) -> str:
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character:
                raise SqlError(f"the pattern {pattern!r} ends with its escape character; double it")
            parts.append(_plain(character))
        elif character == "%":
            parts.append("*")
        else:
            parts.append("?" if character == "_" else _plain(character))
    return "".join(parts)


def _plain(character: str) -> str:
    return f"[{character}]" if character in _SPECIAL else character
