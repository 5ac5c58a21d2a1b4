"""Patterns of LIKE in one form: `%` and `_` stand for anything, a backslash before them or before itself takes that away.

Engines agree on this form only: a backslash before something else, or at the end, is an error in one and a letter in another.
"""


def canonical_pattern(pattern: str, escape: str) -> str | None:
    """The pattern with backslashes, whatever was escaped by before. `None` if an escape stands before nothing special."""
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape) or not letter:
                return None
            parts.append(f"\\{letter}" if letter in "%_\\" else letter)
        else:
            parts.append("\\\\" if letter == "\\" else letter)
    return "".join(parts)
