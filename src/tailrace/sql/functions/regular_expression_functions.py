"""What PostgreSQL's functions of regular expressions return: `regexp_match`, `regexp_replace`, `SIMILAR TO` and so on."""

import re
from collections.abc import Iterator, Sequence

from tailrace.sql.functions.regular_expression_matcher import Matcher, Span, compiled, whole
from tailrace.sql.functions.text_functions import TextError

_LIMIT = 10_000_000
_REPLACED = re.compile(r"\\([1-9&\\])")


def is_matched(text: str, pattern: str, flags: str) -> bool:
    return _matcher(pattern, flags, "regexp_like").search(text).find(0) is not None


def first_match(text: str, pattern: str, flags: str) -> list[str | None] | None:
    """Return the groups of the first match, or the whole of it if there are none."""
    matcher = _matcher(pattern, flags, "regexp_match")
    found = matcher.search(text).find(0)
    return None if found is None else _groups(text, found)


def all_matches(text: str, pattern: str, flags: str) -> list[list[str | None]]:
    """Return the groups of each match if the flag `g` is given, else those of the first."""
    if "g" not in flags:
        found = compiled(pattern, flags).search(text).find(0)
        return [] if found is None else [_groups(text, found)]
    return [_groups(text, found) for found in compiled(pattern, flags.replace("g", "")).search(text).find_all()]


def _groups(text: str, found: Sequence[Span | None]) -> list[str | None]:
    return [None if span is None else text[span[0] : span[1]] for span in (found[1:] or found[:1])]


def matched_part(text: str, pattern: str) -> str | None:
    """Return the first group of the first match, or the whole of it: `substring(text from pattern)`."""
    found = compiled(pattern).search(text).find(0)
    return None if found is None else _groups(text, found)[0]


def replaced(text: str, pattern: str, replacement: str, flags: str) -> str:
    if flags[:1].isdigit():
        raise TextError(f'[22023] invalid regular expression option: "{flags[0]}"')
    return _replaced(text, compiled(pattern, flags.replace("g", "")), replacement, 1, 0 if "g" in flags else 1)


def replaced_from(text: str, pattern: str, replacement: str, start: int, which: int, flags: str) -> str:
    """Replace one match from a place, or all where `which` is 0. A negative one means that the flags decide."""
    _check_positive("start", start)
    if which < 0:
        raise TextError(f'[22023] invalid value for parameter "n": {which}')
    return _replaced(text, compiled(pattern, flags.replace("g", "")), replacement, start, which)


def _replaced(text: str, matcher: Matcher, replacement: str, start: int, which: int) -> str:
    out: list[str] = []
    at = size = 0
    is_plain = "\\" not in replacement
    for number, found in enumerate(_from(matcher, text, start), 1):
        if which and number < which:
            continue
        begin, end = whole(found)
        shown = replacement if is_plain else _filled(replacement, text, found)
        out += (text[at:begin], shown)
        size += begin - at + len(shown)
        if size > _LIMIT:
            raise TextError("[54000] requested length too large: a text of a query can have 10 MB")
        at = end
        if which:
            break
    out.append(text[at:])
    return "".join(out)


def _from(matcher: Matcher, text: str, start: int) -> Iterator[list[Span | None]]:
    return matcher.search(text).find_all(start - 1)


def _filled(replacement: str, text: str, found: Sequence[Span | None]) -> str:
    def part(escape: re.Match[str]) -> str:
        kind = escape[1]
        if kind == "\\":
            return "\\"
        number = 0 if kind == "&" else int(kind)
        span = found[number] if number < len(found) else None
        return "" if span is None else text[span[0] : span[1]]

    return _REPLACED.sub(part, replacement)


def split(text: str, pattern: str, flags: str) -> list[str]:
    """Split at each match. Empty matches at the ends and beside another match do not count."""
    pieces = []
    at = previous = 0
    for found in _matcher(pattern, flags, "regexp_split_to_array").search(text).find_all():
        begin, end = whole(found)
        if begin < len(text) and end > previous:
            pieces.append(text[at:begin])
            at = end
        previous = end
    return [*pieces, text[at:]]


def count(text: str, pattern: str, start: int, flags: str) -> int:
    _check_positive("start", start)
    return sum(1 for _ in _from(_matcher(pattern, flags, "regexp_count"), text, start))


def place(text: str, pattern: str, start: int, which: int, end_option: int, flags: str, group: int) -> int:
    """Return where a match begins, or what follows it; 0 if there is none."""
    _check_positive("start", start)
    _check_positive("n", which)
    if end_option not in (0, 1):
        raise TextError(f'[22023] invalid value for parameter "endoption": {end_option}')
    span = _span(text, _matcher(pattern, flags, "regexp_instr"), start, which, group)
    return 0 if span is None else span[end_option] + 1


def substring(text: str, pattern: str, start: int, which: int, flags: str, group: int) -> str | None:
    _check_positive("start", start)
    _check_positive("n", which)
    span = _span(text, _matcher(pattern, flags, "regexp_substr"), start, which, group)
    return None if span is None else text[span[0] : span[1]]


def _span(text: str, matcher: Matcher, start: int, which: int, group: int) -> Span | None:
    if group < 0:
        raise TextError(f'[22023] invalid value for parameter "subexpr": {group}')
    if group > matcher.groups:
        return None
    for number, found in enumerate(_from(matcher, text, start), 1):
        if number == which:
            return found[group]
    return None


def _check_positive(name: str, value: int) -> None:
    if value <= 0:
        raise TextError(f'[22023] invalid value for parameter "{name}": {value}')


def _matcher(pattern: str, flags: str, name: str) -> Matcher:
    if "g" in flags:
        raise TextError(f'[22023] {name}() does not support the "global" option')
    return compiled(pattern, flags)


def similar_pattern(pattern: str, escape: str) -> str:
    """Return the regular expression of a pattern of SIMILAR TO."""
    if len(escape) > 1:
        raise TextError("[22025] invalid escape string")
    out = ["^(?:"]
    depth = opening = quotes = 0
    is_after = False
    for one in pattern:
        if is_after:
            if one == '"' and depth < 1:
                if quotes > 1:
                    raise TextError(
                        "[2200C] SQL regular expression may not contain more than two escape-double-quote separators"
                    )
                out.append("){1,1}?(" if quotes == 0 else "){1,1}(?:")
                quotes += 1
            else:
                out.append("\\" + one)
                opening = 3
            is_after = False
        elif one == escape:
            is_after = True
        elif depth:
            out.append("\\\\" if one == "\\" else one)
            if one == "]" and opening > 2:
                depth -= 1
            elif one == "[":
                depth += 1
            opening = opening + 1 if one == "^" else 3
        else:
            out.append({"%": ".*", "_": ".", "(": "(?:", "\\": "\\\\", ".": "\\.", "^": "\\^", "$": "\\$"}.get(one, one))
            if one == "[":
                depth = opening = 1
    return "".join([*out, ")$"])
