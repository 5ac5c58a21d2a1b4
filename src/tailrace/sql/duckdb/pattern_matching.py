"""LIKE, SIMILAR TO and regular expressions: PostgreSQL's chapter "Pattern Matching".

A constant pattern that is only tested is written for DuckDB's own engines. What a pattern matched is found by
`regular_expression_matcher.py`, whose rules are PostgreSQL's.
"""

import re
from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Cast, Constant, Expression
from tailrace.sql.duckdb.re2_matches import always_captures, matches_alike
from tailrace.sql.duckdb.re2_patterns import literal_of, re2_pattern
from tailrace.sql.duckdb.templates import RowFunction, Template
from tailrace.sql.functions import characters
from tailrace.sql.functions.regular_expression_functions import similar_pattern
from tailrace.sql.functions.regular_expression_tree import RegularExpression
from tailrace.sql.functions.regular_expressions import read
from tailrace.sql.functions.text_functions import TextError, like_escape

_NOT_SUPPORTED = "[0A000] "
_MAX_TEXT = 10_000_000
_DIGITS = "123456789"
_ESCAPED = re.compile(r"\\(.|$)", re.DOTALL)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def constant_pattern(node: Expression) -> str | None:
    """Return the pattern of a constant, also of one with an ESCAPE clause; `None` if only the values tell."""
    if isinstance(node, Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, Cast) and node.type.name in ("text", "varchar"):
        return constant_pattern(node.argument)
    if isinstance(node, Call) and node.signature.name in ("like_escape", "similar_to_escape", "similar_escape"):
        given = [constant_pattern(one) for one in node.arguments]
        if any(one is None for one in given):
            return None
        pattern, escape = (*given, "\\")[:2]
        convert = like_escape if node.signature.name == "like_escape" else similar_pattern
        try:
            return convert(pattern or "", escape or "")
        except TextError:
            return None
    return None


def _like(*, ignores_case: bool = False, is_negated: bool = False) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        text, pattern = arguments[0], arguments[1]
        constant = constant_pattern(call.arguments[1])
        if ignores_case:
            text = f"lower_text({text})"
            pattern = f"lower_text({pattern})"
            constant = None if constant is None else characters.lower(constant)
        result = f"like_text({text}, {pattern})" if constant is None else _like_constant(text, constant)
        return f"(NOT {result})" if is_negated else result

    return render


def _like_constant(text: str, pattern: str) -> str:
    if "\\" not in pattern:
        return f"({text} LIKE {_literal(pattern)})"
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        # It fails, but only where the text is matched as far as the escape at the end.
        return f"like_with_escapes({text}, {_literal(pattern)})"
    return f"({text} LIKE {_literal(pattern)} ESCAPE '\\')"


def _matches(flags: str = "", *, is_negated: bool = False) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        result = _tested(arguments[0], arguments[1], call, flags)
        return f"(NOT {result})" if is_negated else result

    return render


def _regexp_like(arguments: Sequence[str], call: Call) -> str:
    if len(arguments) == 2:
        return _tested(arguments[0], arguments[1], call, "")
    flags = constant_pattern(call.arguments[2])
    if flags is not None and "g" not in flags:
        return _tested(arguments[0], arguments[1], call, flags)
    return f"regexp_is_matched({', '.join(arguments)})"


def _tested(text: str, pattern: str, call: Call, flags: str) -> str:
    constant = constant_pattern(call.arguments[1])
    general = f"regexp_is_matched({text}, {pattern}, {_literal(flags)})"
    if constant is None or not _is_valid(constant, flags, call):
        return general
    expression = read(constant, flags)
    found = literal_of(expression)
    if found is not None and found[1]:
        at_start, literal, at_end = found
        if at_start and at_end:
            return f"({text} = {_literal(literal)})"
        name = "starts_with" if at_start else "ends_with" if at_end else "contains"
        return f"{name}({text}, {_literal(literal)})"
    native = re2_pattern(expression)
    return general if native is None else f"regexp_matches({text}, {_literal(native)})"


def _is_valid(pattern: str, flags: str, call: Call) -> bool:
    """Return whether a pattern can be read. One that can't fails as the query runs; one that is not supported is refused."""
    try:
        read(pattern, flags)
    except TextError as error:
        if str(error).startswith(_NOT_SUPPORTED):
            raise UnsupportedError(str(error).removeprefix(_NOT_SUPPORTED), call.location) from None
        return False
    return True


def _calls(name: str, *defaults: str, flags_at: int = -1) -> Callable[[Sequence[str], Call], str]:
    """Return a template of a function that takes the arguments, and defaults for those that are not given."""

    def render(arguments: Sequence[str], call: Call) -> str:
        pattern = constant_pattern(call.arguments[1])
        given = constant_pattern(call.arguments[flags_at]) if 0 <= flags_at < len(arguments) else ""
        if pattern is not None and given is not None:
            _is_valid(pattern, given.replace("g", ""), call)
        missing = defaults[len(arguments) - 2 :]
        return f"{name}({', '.join([*arguments, *missing])})"

    return render


def _extracted(name: str, *, flags_at: int = 2, is_list: bool = False) -> Callable[[Sequence[str], Call], str]:
    """Return a template of a function of the first match, which RE2 finds if it finds the same."""
    general = _calls(name, *([_NO_FLAGS] if is_list else []), flags_at=flags_at)

    def render(arguments: Sequence[str], call: Call) -> str:
        text = general(arguments, call)
        flags = constant_pattern(call.arguments[flags_at]) if flags_at < len(arguments) else ""
        native = _native(call, flags)
        if native is None or not always_captures(native[0]):
            return text
        expression, pattern = native
        parts = range(1, expression.groups + 1) if expression.groups else range(1)
        found = [f"regexp_extract({arguments[0]}, {_literal(pattern)}, {at})" for at in parts]
        result = f"[{', '.join(found)}]" if is_list else found[0]
        return f"(CASE WHEN regexp_matches({arguments[0]}, {_literal(pattern)}) THEN {result} END)"

    return render


def _native(call: Call, flags: str | None) -> tuple[RegularExpression, str] | None:
    """Return the pattern of a call for RE2 if that finds the same matches and groups."""
    pattern = constant_pattern(call.arguments[1])
    if pattern is None or flags is None or "g" in flags or not _is_valid(pattern, flags, call):
        return None
    expression = read(pattern, flags)
    native = re2_pattern(expression) if matches_alike(expression) else None
    return None if native is None else (expression, native)


def _replaced_natively(arguments: Sequence[str], call: Call) -> str | None:
    flags = constant_pattern(call.arguments[3]) if len(arguments) > 3 else ""
    replacement = constant_pattern(call.arguments[2])
    native = None if flags is None else _native(call, flags.replace("g", ""))
    if native is None or flags is None or replacement is None or flags[:1].isdigit():
        return None
    expression, pattern = native
    written = re2_replacement(replacement, expression.groups)
    options = ", 'g'" if "g" in flags else ""
    general = f"regexp_replaced({', '.join(arguments[:3])}, {_literal(flags)})"
    short = f"strlen({arguments[0]}) <= {_MAX_TEXT // (len(replacement) + 1)}"
    return (
        f"(CASE WHEN {short} THEN regexp_replace({arguments[0]}, {_literal(pattern)}, {_literal(written)}{options})"
        f" ELSE {general} END)"
    )


def re2_replacement(replacement: str, groups: int) -> str:
    """Return a replacement with RE2's escapes."""

    def written(found: re.Match[str]) -> str:
        kind = found[1]
        if kind == "&":
            return "\\0"
        if kind in _DIGITS:
            return f"\\{kind}" if int(kind) <= groups else ""
        return "\\\\" if kind == "\\" else "\\\\" + kind

    return _ESCAPED.sub(written, replacement)


def _replace(arguments: Sequence[str], call: Call) -> str:
    """Write regexp_replace. Where no number of a match is given, the flags say whether all are replaced."""
    pattern = constant_pattern(call.arguments[1])
    if pattern is not None:
        _is_valid(pattern, "", call)
    text = ", ".join(arguments[:3])
    rest = list(arguments[3:])
    if not rest or call.signature.arguments[3] == "text":
        native = _replaced_natively(arguments, call)
        if native is not None:
            return native
        return f"regexp_replaced({text}, {rest[0] if rest else _literal('')})"
    start, which, flags = (*rest, "1", _literal(""))[:3] if len(rest) == 1 else (*rest, _literal(""))[:3]
    return f"regexp_replaced_from({text}, {start}, {which}, {flags})"


_NO_FLAGS = "''"

PATTERN_MATCHING: dict[str, Template] = {
    **{
        f"{kind} {operator} text": template
        for kind in ("text", "bpchar", "name")
        for operator, template in {
            "~~": _like(),
            "!~~": _like(is_negated=True),
            "~~*": _like(ignores_case=True),
            "!~~*": _like(ignores_case=True, is_negated=True),
            "~": _matches(),
            "!~": _matches(is_negated=True),
            "~*": _matches("i"),
            "!~*": _matches("i", is_negated=True),
        }.items()
    },
    "like(text, text)": _like(),
    "notlike(text, text)": _like(is_negated=True),
    "like_escape(text, text)": "like_escape({0}, {1})",
    "similar_to_escape(text)": "similar_pattern({0}, '\\')",
    "similar_to_escape(text, text)": "similar_pattern({0}, {1})",
    "substring(text, text)": _extracted("regexp_matched_part"),
    "substring(text, text, text)": "regexp_matched_part({0}, similar_pattern({1}, {2}))",
    "regexp_like(text, text)": _regexp_like,
    "regexp_like(text, text, text)": _regexp_like,
    "regexp_match(text, text)": _extracted("regexp_first_match", is_list=True),
    "regexp_match(text, text, text)": _extracted("regexp_first_match", is_list=True),
    "regexp_replace(text, text, text)": _replace,
    "regexp_replace(text, text, text, text)": _replace,
    "regexp_replace(text, text, text, int4)": _replace,
    "regexp_replace(text, text, text, int4, int4)": _replace,
    "regexp_replace(text, text, text, int4, int4, text)": _replace,
    "regexp_split_to_array(text, text)": _calls("regexp_pieces", _NO_FLAGS),
    "regexp_split_to_array(text, text, text)": _calls("regexp_pieces", _NO_FLAGS, flags_at=2),
    **{
        f"regexp_count(text, text{more})": _calls("regexp_count_of", "1", _NO_FLAGS, flags_at=3)
        for more in ("", ", int4", ", int4, text")
    },
    **{
        f"regexp_instr(text, text{more})": _calls("regexp_place", "1", "1", "0", _NO_FLAGS, "0", flags_at=5)
        for more in (
            "",
            ", int4",
            ", int4, int4",
            ", int4, int4, int4",
            ", int4, int4, int4, text",
            ", int4, int4, int4, text, int4",
        )
    },
    **{
        f"regexp_substr(text, text{more})": _calls("regexp_substring", "1", "1", _NO_FLAGS, "0", flags_at=4)
        for more in ("", ", int4", ", int4, int4", ", int4, int4, text", ", int4, int4, text, int4")
    },
}

PATTERN_ROWS: dict[str, RowFunction] = {
    "regexp_matches(text, text)": RowFunction(_calls("regexp_all_matches", _NO_FLAGS)),
    "regexp_matches(text, text, text)": RowFunction(_calls("regexp_all_matches", _NO_FLAGS, flags_at=2)),
    "regexp_split_to_table(text, text)": RowFunction(_calls("regexp_pieces", _NO_FLAGS)),
    "regexp_split_to_table(text, text, text)": RowFunction(_calls("regexp_pieces", _NO_FLAGS, flags_at=2)),
}
