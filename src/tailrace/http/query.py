"""Query parameters that an endpoint does not have are refused: one that is misspelt would be ignored in silence."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from tailrace.http.problems import RequestRefusedError


def refuse_unknown(path: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises `RequestRefusedError` with the one that was probably meant, and with those that there are."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            there = f"it takes {', '.join(known)}" if known else "it takes none"
            raise RequestRefusedError(400, f"{path} has no query parameter {name[:40]!r}; {hint}{there}")
