"""Texts: case, parts, padding, LIKE. Texts are compared and cut by characters (code points)."""

import hashlib
from collections.abc import Callable
from typing import Any

from tailrace.sql.analysis.tree import Call
from tailrace.sql.evaluation.bytes import BYTES
from tailrace.sql.evaluation.functions import ByCall, Entry, EvaluationError, Function, check_length, coded, expanded
from tailrace.sql.evaluation.output_texts import cast_printer, printer
from tailrace.sql.functions import characters, text_functions

_MAX_CODE_POINT = 0x10FFFF


def _part(text: Any, start: int, length: int | None = None) -> Any:
    """Return the part of a text or of bytes from a position that may lie before its start."""
    if length is None:
        return text[max(start, 1) - 1 :]
    if length < 0:
        raise EvaluationError("22011", "negative substring length not allowed")
    return text[max(start, 1) - 1 : max(start + length, 1) - 1]


def _overlay(text: Any, new: Any, start: int, length: int | None = None) -> Any:
    length = len(new) if length is None else length
    if start <= 0:
        raise EvaluationError("22011", "negative substring length not allowed")
    check_length(len(text) + len(new))
    return _part(text, 1, start - 1) + new + _part(text, start + length)


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    if count == -(1 << 31):
        # The negative of it is itself in PostgreSQL.
        return text
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def _repeat(text: str, count: int) -> str:
    check_length(len(text) * count)
    return text * count


def _padding(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    check_length(length)
    return (fill * (missing // len(fill) + 1))[:missing] if fill and missing > 0 else ""


def _left_padded(text: str, length: int, fill: str = " ") -> str:
    return _padding(text, length, fill) + text[: max(length, 0)]


def _right_padded(text: str, length: int, fill: str = " ") -> str:
    return text[: max(length, 0)] + _padding(text, length, fill)


def _replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    check_length(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for at, character in enumerate(old):
        table.setdefault(ord(character), new[at] if at < len(new) else None)
    return text.translate(table)


def _field(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise EvaluationError("22023", "field position must not be zero")
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _trimmer(cut: Callable[[str, str], str]) -> Function:
    # An empty set of characters cuts nothing; Python would take it for white space.
    return lambda text, characters=" ": cut(text, characters) if characters else text


def _concat(call: Call) -> Function:
    printers = [printer(one.type) for one in call.arguments]
    return lambda *values: "".join(show(value) for show, value in zip(printers, values, strict=True) if value is not None)


def _concat_with(call: Call) -> Function:
    printers = [printer(one.type) for one in call.arguments[1:]]

    def concat(separator: str | None, *values: Any) -> str | None:
        if separator is None:
            return None
        return separator.join(show(value) for show, value in zip(printers, values, strict=True) if value is not None)

    return concat


def _joined(call: Call) -> Function:
    """Return `||` of a text and a value of another type."""
    left, right = (cast_printer(one.type) for one in call.arguments)
    return lambda a, b: left(a) + right(b)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _character(code: int) -> str:
    if code == 0:
        raise EvaluationError("54000", "null character not permitted")
    if code < 0:
        raise EvaluationError("22023", "character number must be positive")
    if code > _MAX_CODE_POINT:
        raise EvaluationError("54000", f"requested character too large for encoding: {code}")
    if 0xD800 <= code <= 0xDFFF:
        raise EvaluationError("54000", f"requested character not valid for encoding: {code}")
    return chr(code)


def _quoted_literal(call: Call) -> Function:
    show = cast_printer(call.arguments[0].type)
    return lambda value: text_functions.quoted_literal(show(value))


def _quoted_nullable(call: Call) -> Function:
    quote = _quoted_literal(call)
    return lambda value: "NULL" if value is None else quote(value)


def _format(call: Call) -> Function:
    printers = [printer(one.type) for one in call.arguments[1:]]

    def function(text: str | None, *values: Any) -> str | None:
        shown = [None if value is None else show(value) for show, value in zip(printers, values, strict=True)]
        return None if text is None else text_functions.format_text(text, shown)

    return coded(function)


def _normalized(text: str, form: str = "NFC") -> str:
    return text_functions.normalized(text, form)


_TEXT_ENTRIES: dict[str, Entry] = {
    "text || text": lambda a, b: a + b,
    "text || anynonarray": ByCall(_joined),
    "anynonarray || text": ByCall(_joined),
    "concat(any)": ByCall(_concat, is_strict=False),
    "concat_ws(text, any)": ByCall(_concat_with, is_strict=False),
    "lower(text)": characters.lower,
    "upper(text)": characters.upper,
    "casefold(text)": characters.casefold,
    "initcap(text)": characters.initcap,
    "quote_ident(text)": text_functions.quoted_identifier,
    "format(text)": ByCall(_format, is_strict=False),
    "format(text, any)": ByCall(_format, is_strict=False),
    "length(text)": len,
    "char_length(text)": len,
    "character_length(text)": len,
    "length(bpchar)": lambda text: len(text.rstrip(" ")),
    "char_length(bpchar)": lambda text: len(text.rstrip(" ")),
    "character_length(bpchar)": lambda text: len(text.rstrip(" ")),
    "octet_length(text)": lambda text: len(text.encode()),
    "octet_length(bpchar)": lambda text: len(text.encode()),
    "bit_length(text)": lambda text: len(text.encode()) * 8,
    "btrim(text)": _trimmer(str.strip),
    "btrim(text, text)": _trimmer(str.strip),
    "ltrim(text)": _trimmer(str.lstrip),
    "ltrim(text, text)": _trimmer(str.lstrip),
    "rtrim(text)": _trimmer(str.rstrip),
    "rtrim(text, text)": _trimmer(str.rstrip),
    "substring(text, int4)": _part,
    "substring(text, int4, int4)": _part,
    "substr(text, int4)": _part,
    "substr(text, int4, int4)": _part,
    "overlay(text, text, int4)": _overlay,
    "overlay(bytea, bytea, int4)": _overlay,
    "overlay(bytea, bytea, int4, int4)": _overlay,
    "overlay(text, text, int4, int4)": _overlay,
    "left(text, int4)": _left,
    "right(text, int4)": _right,
    "position(text, text)": lambda text, part: text.find(part) + 1,
    "strpos(text, text)": lambda text, part: text.find(part) + 1,
    "replace(text, text, text)": _replace,
    "translate(text, text, text)": _translate,
    "repeat(text, int4)": _repeat,
    "reverse(text)": lambda text: text[::-1],
    "lpad(text, int4)": _left_padded,
    "lpad(text, int4, text)": _left_padded,
    "rpad(text, int4)": _right_padded,
    "rpad(text, int4, text)": _right_padded,
    "split_part(text, text, int4)": _field,
    "ascii(text)": _ascii,
    "chr(int4)": _character,
    "md5(text)": lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    "quote_literal(text)": ByCall(_quoted_literal),
    "quote_literal(anyelement)": ByCall(_quoted_literal),
    "quote_nullable(text)": ByCall(_quoted_nullable, is_strict=False),
    "quote_nullable(anyelement)": ByCall(_quoted_nullable, is_strict=False),
    "unistr(text)": coded(text_functions.unicode_unescaped),
    "parse_ident(text, bool)": coded(lambda text, is_strict=True: text_functions.identifier_parts(text, is_strict)),
    "starts_with(text, text)": str.startswith,
    "text ^@ text": str.startswith,
    "normalize(text, text)": coded(_normalized),
    "is_normalized(text, text)": coded(lambda text, form="NFC": _normalized(text, form) == text),
    "text ~<~ text": lambda a, b: a < b,
    "text ~<=~ text": lambda a, b: a <= b,
    "text ~>~ text": lambda a, b: a > b,
    "text ~>=~ text": lambda a, b: a >= b,
}
TEXTS: dict[str, Entry] = {**expanded(_TEXT_ENTRIES), **BYTES}
