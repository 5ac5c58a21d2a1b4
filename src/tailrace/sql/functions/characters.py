"""Classes and case of characters as PostgreSQL's collation C.UTF-8 has them, whichever Unicode Python and DuckDB know."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

Ranges = Sequence[tuple[int, int]]
"""First and last code points, in order and without overlaps."""

LAST_CHARACTER = 0x10FFFF
_DIGITS = ((0x30, 0x39),)
_SPACES = (
    (0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
)  # fmt: skip


class _Characters(NamedTuple):
    classes: Mapping[str, Ranges]
    upper: Mapping[int, str]
    lower: Mapping[int, str]
    casefold: Mapping[int, str]


@cache
def _characters() -> _Characters:
    classes: dict[str, Ranges] = {}
    cases: dict[str, Mapping[int, str]] = {}
    # Other ends of lines than this one occur among the characters.
    for line in resources.files(__package__).joinpath("characters.tsv").read_text("utf-8").split("\n"):
        kind, *fields = line.split("\t")
        if kind == "class":
            classes[fields[0]] = [_range(text) for text in fields[1].split(" ")]
        elif kind == "case":
            cases[fields[0]] = {ord(one): other for one, other in zip(fields[1], fields[2], strict=True)}
    classes |= {
        "digit": _DIGITS,
        "space": _SPACES,
        "blank": ((0x9, 0x9), (0x20, 0x20)),
        "cntrl": ((0x1, 0x1F), (0x7F, 0x9F)),
        "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
        "ascii": ((0x1, 0x7F),),
        "alnum": merged([*_DIGITS, *classes["alpha"]]),
        "word": merged([*_DIGITS, (0x5F, 0x5F), *classes["alpha"]]),
    }
    return _Characters(classes, cases["upper"], cases["lower"], cases["casefold"])


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first, 16), int(last or first, 16)


def merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return the same characters in order, without overlaps and with neighbours joined."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def complement(ranges: Ranges) -> Ranges:
    """Return all characters but these."""
    result: list[tuple[int, int]] = []
    start = 1
    for first, last in ranges:
        if first > start:
            result.append((start, first - 1))
        start = last + 1
    if start <= LAST_CHARACTER:
        result.append((start, LAST_CHARACTER))
    return result


def class_ranges(name: str) -> Ranges | None:
    """Return the characters of a class such as `alpha`, or `None` if there is none of that name."""
    return _characters().classes.get(name)


def is_in(ranges: Ranges, code: int) -> bool:
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][1] < code:
            low = middle + 1
        else:
            high = middle
    return low < len(ranges) and ranges[low][0] <= code


def upper(text: str) -> str:
    return text.translate(_characters().upper)


def lower(text: str) -> str:
    return text.translate(_characters().lower)


def casefold(text: str) -> str:
    return text.translate(_characters().casefold)


def initcap(text: str) -> str:
    """Return the text with a capital at the beginning of each word and small letters elsewhere."""
    alnum = _characters().classes["alnum"]
    uppers, lowers = _characters().upper, _characters().lower
    out = []
    is_inside = False
    for character in text:
        code = ord(character)
        out.append((lowers if is_inside else uppers).get(code, character))
        is_inside = is_in(alnum, code)
    return "".join(out)
