"""Texts. Functions that could make much of little are bounded to 10 MB."""

from collections.abc import Callable, Sequence
from functools import cache

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.functions import characters
from tailrace.sql.spark.casts import text_of
from tailrace.sql.spark.templates import Rendered, SparkTemplate, Template, constant_of, fails, spark_string

_TEXT_LIMIT = 10_000_000
_NEW_LETTERS = "".join(map(chr, (*range(0xA7CB, 0xA7DE), *range(0x16EA0, 0x16ED4))))
"""Letters whose case Unicode has decided lately, so that it depends on the version."""
_STAND_INS = 0x10F000
"""The first of the private characters that stand for letters while others change their case."""
_SPACE = "' '"
_MAX_INT4 = (1 << 31) - 1


@cache
def _odd_letters(*, is_upper: bool) -> str:
    """Return the letters whose case is one letter in PostgreSQL and may be several, or another one, in Spark."""
    if not is_upper:
        # The small sigma at the end of a word has another form.
        return f"\u0130\u03a3{_NEW_LETTERS}"
    return "".join(chr(code) for code in range(0x80, 0x10000) if len(chr(code).upper()) > 1) + _NEW_LETTERS


def _with_case(text: str, name: str) -> str:
    """Return the text with all letters in one case, null if it has private characters that stand for others here."""
    is_upper = name == "upper"
    odd = _odd_letters(is_upper=is_upper)
    stand_ins = "".join(chr(_STAND_INS + at) for at in range(len(odd)))
    changed = characters.upper(odd) if is_upper else characters.lower(odd)
    hidden = f"{name}(translate({text}, '{odd}', '{stand_ins}'))"
    private = f"[{stand_ins[0]}-{stand_ins[-1]}]"
    return f"CASE WHEN NOT {text} RLIKE '{private}' THEN translate({hidden}, '{stand_ins}', '{changed}') END"


def lower_text(text: str) -> str:
    return _with_case(text, "lower")


def _int(node: Expression) -> int | None:
    return node.value if isinstance(node, Constant) and isinstance(node.value, int) else None


def _substring(arguments: Sequence[str], call: Call) -> Rendered:
    text, *bounds = arguments
    start = _int(call.arguments[1])
    first = f"CASE WHEN {bounds[0]} < 1 THEN 1 ELSE {bounds[0]} END" if start is None else str(max(start, 1))
    if len(bounds) == 1:
        return f"substring({text}, {first})"
    length = _int(call.arguments[2])
    if start is not None and length is not None and length >= 0:
        return f"substring({text}, {first}, {max(0, min(start + length - max(start, 1), _MAX_INT4))})"
    stop = f"(CAST({bounds[0]} AS BIGINT) + {bounds[1]})"
    count = f"CAST(least(greatest({stop} - {first}, 0L), {_MAX_INT4}L) AS INT)"
    return fails(f"CASE WHEN {bounds[1]} >= 0 THEN substring({text}, {first}, {count}) END")


def _left(arguments: Sequence[str], call: Call) -> Rendered:
    text, count = arguments
    size = f"CASE WHEN {count} < 0 THEN greatest(length({text}) + {count}, 0) ELSE {count} END"
    known = _int(call.arguments[1])
    return f"substring({text}, 1, {size if known is None or known < 0 else count})"


def _right(arguments: Sequence[str], call: Call) -> Rendered:
    text, count = arguments
    known = _int(call.arguments[1])
    if known is not None and known >= 0:
        return f"right({text}, {count})"
    # The first character that is kept.
    place = (
        f"CASE WHEN {count} = -{1 << 31}L THEN 1L WHEN {count} < 0 THEN least(1L - {count}, {_MAX_INT4}L)"
        f" WHEN {count} < length({text}) THEN length({text}) - {count} + 1L WHEN {count} IS NOT NULL THEN 1L END"
    )
    return f"substring({text}, CAST({place} AS INT))"


def _split_part(arguments: Sequence[str], call: Call) -> Rendered:
    number = _int(call.arguments[2])
    if not isinstance(call.arguments[1], Constant) or not call.arguments[1].value or not number:
        raise UnsupportedError(
            "in a route split_part needs a constant delimiter and a constant number other than 0", call.location
        )
    return f"split_part({', '.join(arguments)})"


def _split(arguments: Sequence[str], call: Call) -> Rendered:
    delimiter = str(constant_of(call.arguments[1], "the delimiter of string_to_array"))
    if not delimiter:
        raise UnsupportedError("in a route the delimiter of string_to_array must not be empty", call.location)
    pattern = "".join(letter if letter.isalnum() else f"\\x{{{ord(letter):X}}}" for letter in delimiter)
    text = arguments[0]
    return f"CASE WHEN {text} = '' THEN CAST(array() AS ARRAY<STRING>) ELSE split({text}, {spark_string(pattern)}, -1) END"


def _encoded(arguments: Sequence[str], call: Call) -> Rendered:
    if str(constant_of(call.arguments[1], "the format of encode")).lower() != "hex":
        raise UnsupportedError("a route can only encode to hex", call.location)
    return f"lower(hex({arguments[0]}))"


def _repeat(arguments: Sequence[str], call: Call) -> Rendered:
    text, count = arguments
    return fails(f"CASE WHEN length({text}) * CAST({count} AS BIGINT) <= {_TEXT_LIMIT}L THEN repeat({text}, {count}) END")


def _padded(name: str) -> Callable[[Sequence[str], Call], Rendered]:
    def render(arguments: Sequence[str], call: Call) -> Rendered:
        fill = call.arguments[2] if len(call.arguments) > 2 else None
        if fill is not None and (not isinstance(fill, Constant) or not fill.value):
            raise UnsupportedError(f"in a route {name} needs a constant fill that is not empty", call.location)
        text, count, *rest = arguments
        padded = f"{name}({text}, CASE WHEN {count} < 0 THEN 0 ELSE {count} END, {rest[0] if rest else _SPACE})"
        known = _int(call.arguments[1])
        if known is not None and known <= _TEXT_LIMIT:
            return padded
        return fails(f"CASE WHEN {count} <= {_TEXT_LIMIT} THEN {padded} END")

    return render


def _output(text: str, node: Expression) -> str:
    """Return the text of a value as `concat` joins it: a boolean is one letter there."""
    return f"CASE {text} WHEN TRUE THEN 't' WHEN FALSE THEN 'f' END" if node.type.name == "bool" else text_of(text, node)


def _concat(arguments: Sequence[str], call: Call) -> Rendered:
    texts = [_output(text, one) for text, one in zip(arguments, call.arguments, strict=True)]
    filled = [f"coalesce({text}, '')" for text in texts]
    return SparkTemplate(f"concat({', '.join(filled)})", is_strict=False)


def _concat_with(arguments: Sequence[str], call: Call) -> Rendered:
    texts = [_output(text, one) for text, one in zip(arguments, call.arguments, strict=True)]
    return SparkTemplate(f"concat_ws({', '.join(texts)})", is_strict=False)


def _joined(arguments: Sequence[str], call: Call) -> Rendered:
    left, right = (text_of(text, one) for text, one in zip(arguments, call.arguments, strict=True))
    return f"({left} || {right})"


def _trimmed(side: str) -> dict[str, Template]:
    name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    return {
        f"{name}(text)": f"trim({side} ' ' FROM {{0}})",
        f"{name}(text, text)": f"trim({side} {{1}} FROM {{0}})",
    }


TEXTS: dict[str, Template] = {
    "text || text": "({0} || {1})",
    "text || anynonarray": _joined,
    "anynonarray || text": _joined,
    "concat(any)": _concat,
    "concat_ws(text, any)": _concat_with,
    "length(text)": "length({0})",
    "char_length(text)": "length({0})",
    "character_length(text)": "length({0})",
    "octet_length(text)": "octet_length({0})",
    "octet_length(bytea)": "octet_length({0})",
    "length(bytea)": "octet_length({0})",
    "bit_length(text)": "bit_length({0})",
    "lower(text)": lambda arguments, _: fails(_with_case(arguments[0], "lower")),
    "upper(text)": lambda arguments, _: fails(_with_case(arguments[0], "upper")),
    "substring(text, int4)": _substring,
    "substring(text, int4, int4)": _substring,
    "substr(text, int4)": _substring,
    "substr(text, int4, int4)": _substring,
    "left(text, int4)": _left,
    "right(text, int4)": _right,
    "strpos(text, text)": "instr({0}, {1})",
    "position(text, text)": "instr({0}, {1})",
    "replace(text, text, text)": "replace({0}, {1}, {2})",
    "reverse(text)": "reverse({0})",
    "repeat(text, int4)": _repeat,
    "lpad(text, int4)": _padded("lpad"),
    "lpad(text, int4, text)": _padded("lpad"),
    "rpad(text, int4)": _padded("rpad"),
    "rpad(text, int4, text)": _padded("rpad"),
    "split_part(text, text, int4)": _split_part,
    "starts_with(text, text)": "startswith({0}, {1})",
    "text ^@ text": "startswith({0}, {1})",
    "translate(text, text, text)": "translate({0}, {1}, {2})",
    "ascii(text)": "ascii({0})",
    "string_to_array(text, text)": _split,
    "encode(bytea, text)": _encoded,
    "to_hex(int4)": "right(lower(hex({0})), 8)",
    "to_hex(int8)": "lower(hex({0}))",
    "bytea || bytea": "({0} || {1})",
    "sha256(bytea)": "unhex(sha2({0}, 256))",
    "md5(text)": "md5({0})",
    "md5(bytea)": "md5({0})",
    **_trimmed("BOTH"),
    **_trimmed("LEADING"),
    **_trimmed("TRAILING"),
}
