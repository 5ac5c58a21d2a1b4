"""Pattern matching: LIKE, SIMILAR TO and regular expressions."""

from tailrace.sql.evaluation.functions import Entry, Function, coded, expanded
from tailrace.sql.functions import characters, text_functions
from tailrace.sql.functions import regular_expression_functions as regular_expressions


def _like(*, ignores_case: bool = False, is_negated: bool = False) -> Function:
    def matches(text: str, pattern: str) -> bool:
        if ignores_case:
            text, pattern = characters.lower(text), characters.lower(pattern)
        return text_functions.like_with_escapes(text, pattern) is not is_negated

    return coded(matches)


def _matches(flags: str = "", *, is_negated: bool = False) -> Function:
    return coded(lambda text, pattern: regular_expressions.is_matched(text, pattern, flags) is not is_negated)


def _replace_from(text: str, pattern: str, new: str, start: int, which: int | None = None, flags: str = "") -> str:
    if which is None:
        which = 1
    return regular_expressions.replaced_from(text, pattern, new, start, which, flags)


def _place(
    text: str, pattern: str, start: int = 1, which: int = 1, end_option: int = 0, flags: str = "", group: int = 0
) -> int:
    return regular_expressions.place(text, pattern, start, which, end_option, flags, group)


def _substring(text: str, pattern: str, start: int = 1, which: int = 1, flags: str = "", group: int = 0) -> str | None:
    return regular_expressions.substring(text, pattern, start, which, flags, group)


def _optional(key: str, *more: str) -> list[str]:
    """Return a key with each number of the optional arguments."""
    return [f"{key}{''.join(f', {one}' for one in more[:count])})" for count in range(len(more) + 1)]


def _pattern_of(pattern: str, escape: str = "\\") -> str:
    return regular_expressions.similar_pattern(pattern, escape)


_ENTRIES: dict[str, Entry] = {
    "{string} ~~ text": _like(),
    "{string} !~~ text": _like(is_negated=True),
    "{string} ~~* text": _like(ignores_case=True),
    "{string} !~~* text": _like(ignores_case=True, is_negated=True),
    "bytea ~~ bytea": coded(text_functions.bytes_like),
    "bytea !~~ bytea": coded(lambda value, pattern: not text_functions.bytes_like(value, pattern)),
    "like_escape(text, text)": coded(text_functions.like_escape),
    "{string} ~ text": _matches(),
    "{string} !~ text": _matches(is_negated=True),
    "{string} ~* text": _matches("i"),
    "{string} !~* text": _matches("i", is_negated=True),
    "similar_to_escape(text)": coded(_pattern_of),
    "similar_to_escape(text, text)": coded(_pattern_of),
    "substring(text, text)": coded(regular_expressions.matched_part),
    "substring(text, text, text)": coded(
        lambda text, pattern, escape: regular_expressions.matched_part(text, _pattern_of(pattern, escape))
    ),
    **dict.fromkeys(
        _optional("regexp_like(text, text", "text"),
        coded(lambda text, pattern, flags="": regular_expressions.is_matched(text, pattern, flags)),
    ),
    **dict.fromkeys(
        _optional("regexp_match(text, text", "text"),
        coded(lambda text, pattern, flags="": regular_expressions.first_match(text, pattern, flags)),
    ),
    **dict.fromkeys(
        _optional("regexp_replace(text, text, text", "text"),
        coded(lambda text, pattern, new, flags="": regular_expressions.replaced(text, pattern, new, flags)),
    ),
    **dict.fromkeys(_optional("regexp_replace(text, text, text, int4", "int4", "text"), coded(_replace_from)),
    **dict.fromkeys(
        _optional("regexp_split_to_array(text, text", "text"),
        coded(lambda text, pattern, flags="": regular_expressions.split(text, pattern, flags)),
    ),
    **dict.fromkeys(
        _optional("regexp_count(text, text", "int4", "text"),
        coded(lambda text, pattern, start=1, flags="": regular_expressions.count(text, pattern, start, flags)),
    ),
    **dict.fromkeys(_optional("regexp_instr(text, text", "int4", "int4", "int4", "text", "int4"), coded(_place)),
    **dict.fromkeys(_optional("regexp_substr(text, text", "int4", "int4", "text", "int4"), coded(_substring)),
}
PATTERNS: dict[str, Entry] = expanded(_ENTRIES)
