"""Reads the text form of values as PostgreSQL's input functions do: `' 12 '` as an integer, `'yes'` as a boolean."""

import math
import re
import struct
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from uuid import UUID

from tailrace.sql.analysis.datetime_texts import read_date, read_time, read_timestamp, read_timestamptz
from tailrace.sql.analysis.errors import (
    INVALID_TEXT,
    OUT_OF_RANGE,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.interval_texts import read_interval
from tailrace.sql.analysis.json_documents import document_text, read_document
from tailrace.sql.analysis.types import SqlType, is_enum

_SPACES = " \t\n\r\v\f"
_INTEGER = re.compile(r"[+-]?(\d+(_\d+)*|0[xX](_?[0-9a-fA-F]+)+|0[oO](_?[0-7]+)+|0[bB](_?[01]+)+)", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)([eE][+-]?\d+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)([pP][+-]?\d+)?", re.ASCII)
_MAX_INTEGER_DIGITS = 100
_MAX_EXPONENT = 200_000
MAX_WHOLE_DIGITS = 131_072
MAX_SCALE = 16_383
"""The most digits of a numeric of PostgreSQL before and after the point."""
_WIDE = Context(prec=400_000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_UUID = re.compile(r"([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}|\{([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}\}")
_BITS = {"int2": 16, "int4": 32, "int8": 64}
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}


def read_text(text: str, wanted: SqlType) -> object:
    """Return the value of a text as a constant of this type. Raises `AnalysisError` as PostgreSQL does."""
    if wanted.is_array:
        return _array(text, wanted)
    if is_enum(wanted.name):
        if text not in wanted.labels:
            raise AnalysisError(INVALID_TEXT, f'invalid input value for enum {wanted}: "{text}"')
        return text
    return _READERS[wanted.name](text, wanted)


def _invalid(text: str, wanted: SqlType, sqlstate: str = INVALID_TEXT) -> AnalysisError:
    return AnalysisError(sqlstate, f'invalid input syntax for type {wanted}: "{text}"')


def _boolean(text: str, wanted: SqlType) -> bool:
    word = text.strip(_SPACES).lower()
    if word in ("o", ""):
        raise _invalid(text, wanted)
    for full, value in _WORDS.items():
        if full.startswith(word):
            return value
    raise _invalid(text, wanted)


def _integer(text: str, wanted: SqlType) -> int:
    word = text.strip(_SPACES)
    if not _INTEGER.fullmatch(word):
        raise _invalid(text, wanted)
    digits = word.lstrip("+-").replace("_", "")
    if len(digits.lstrip("0")) > _MAX_INTEGER_DIGITS:
        raise AnalysisError(OUT_OF_RANGE, f'value "{text}" is out of range for type {wanted}')
    value = int(digits, 0) if digits[:2].lower() in ("0x", "0o", "0b") else int(digits)
    value = -value if word.startswith("-") else value
    bits = _BITS[wanted.name]
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise AnalysisError(OUT_OF_RANGE, f'value "{text}" is out of range for type {wanted}')
    return value


def _float(text: str, wanted: SqlType) -> float:
    word = text.strip(_SPACES)
    named = word.lower()
    if named[1 if named[:1] in ("+", "-") else 0 :] in ("nan", "infinity", "inf"):
        return float(named)
    is_hexadecimal = _HEXADECIMAL.fullmatch(word) is not None
    if not is_hexadecimal and (not _NUMBER.fullmatch(word) or "_" in word):
        raise _invalid(text, wanted)
    try:
        value = float.fromhex(word) if is_hexadecimal else float(word)
    except OverflowError:
        value = float("inf")
    if wanted.name == "float4":
        is_in_range = value != 0 and math.isfinite(value)
        value = nearest_float4(_exact(word, is_hexadecimal=is_hexadecimal) if is_in_range else value)
    mantissa = re.split("p" if is_hexadecimal else "e", word.lower())[0]
    is_zero = not re.search("[1-9a-f]" if is_hexadecimal else "[1-9]", mantissa)
    if value in (float("inf"), float("-inf")) or (not value and not is_zero):
        raise AnalysisError(OUT_OF_RANGE, f'"{text}" is out of range for type {wanted}')
    return value


def _exact(word: str, *, is_hexadecimal: bool) -> Decimal | Fraction:
    if not is_hexadecimal:
        return Decimal(word)
    mantissa, _, exponent = word.lower().replace("0x", "", 1).partition("p")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction, 16) * Fraction(2) ** (int(exponent or 0) - 4 * len(fraction))


def nearest_float4(exact: float | Decimal | Fraction) -> float:
    """Return the float4 that is nearest to a number, infinite if the number is too large."""
    try:
        value = float(exact)
        if value != exact and math.isfinite(value) and not _bits(value) & 1:
            # The nearest double may lie in the middle of two float4, where the number does not. An odd double never does.
            value = math.nextafter(value, math.inf if exact > value else -math.inf)
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return math.copysign(math.inf, exact)
    return float(rounded)


def _bits(value: float) -> int:
    (bits,) = struct.unpack("Q", struct.pack("d", value))
    return int(bits)


def _numeric(text: str, wanted: SqlType) -> Decimal:
    word = text.strip(_SPACES)
    named = word.lower()
    if named == "nan":
        return Decimal("NaN")
    if named in ("infinity", "inf", "+infinity", "+inf"):
        return Decimal("Infinity")
    if named in ("-infinity", "-inf"):
        return Decimal("-Infinity")
    if _INTEGER.fullmatch(word) and not _NUMBER.fullmatch(word):
        return _fixed(Decimal(int(word.replace("_", ""), 0)))
    if not _NUMBER.fullmatch(word):
        raise _invalid(text, wanted)
    mantissa, _, exponent = re.sub("[_ ]", "", word).lower().partition("e")
    if abs(int(exponent or 0)) > _MAX_EXPONENT:
        raise AnalysisError(OUT_OF_RANGE, "value overflows numeric format")
    return _fixed(_WIDE.create_decimal(mantissa).scaleb(int(exponent or 0), _WIDE))


def _fixed(value: Decimal) -> Decimal:
    """Return the number without an exponent, as PostgreSQL keeps it: `1e2` is 100."""
    if value and (value.adjusted() >= MAX_WHOLE_DIGITS or -value.as_tuple().exponent > MAX_SCALE):  # type: ignore[operator]
        raise AnalysisError(OUT_OF_RANGE, "value overflows numeric format")
    if value.as_tuple().exponent > 0:  # type: ignore[operator]
        value = value.quantize(Decimal(1), context=_WIDE)
    return value if value else abs(value)


def _text(text: str, wanted: SqlType) -> str:
    if "\0" in text:
        raise AnalysisError("22021", "a text can't hold the character 0")
    if wanted.length is not None and len(text) > wanted.length:
        if text[wanted.length :].strip(" "):
            raise AnalysisError("22001", f"value too long for type {wanted}({wanted.length})")
        return text[: wanted.length]
    return text


def _bytes(text: str, wanted: SqlType) -> bytes:
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise AnalysisError(INVALID_PARAMETER_TEXT, f'invalid hexadecimal data: "{text[2:]}"') from None
    out = bytearray()
    at = 0
    raw = text.encode()
    while at < len(raw):
        if raw[at] != 0x5C:
            out.append(raw[at])
            at += 1
        elif raw[at + 1 : at + 2] == b"\\":
            out.append(0x5C)
            at += 2
        elif re.fullmatch(rb"[0-3][0-7][0-7]", raw[at + 1 : at + 4]):
            out.append(int(raw[at + 1 : at + 4], 8))
            at += 4
        else:
            raise _invalid(text, wanted)
    return bytes(out)


INVALID_PARAMETER_TEXT = "22023"


def _uuid(text: str, wanted: SqlType) -> UUID:
    if not _UUID.fullmatch(text):
        raise _invalid(text, wanted)
    return UUID(text.strip("{}").replace("-", ""))


def _json(text: str, wanted: SqlType) -> str:
    document = read_document(text)
    return text if wanted.name == "json" else document_text(document)


def _array(text: str, wanted: SqlType) -> list[object]:
    return [None if item is None else read_text(item, wanted.element) for item in read_array_items(text)]


def read_array_items(text: str) -> list[str | None]:
    """Return the texts of the items of an array of one dimension: those of `{a,"b c",NULL}`."""
    malformed = AnalysisError(INVALID_TEXT, f'malformed array literal: "{text}"')
    word = text.strip(_SPACES)
    if word.startswith("["):
        raise UnsupportedError("arrays with bounds of their own are not supported")
    if not word.startswith("{"):
        raise malformed
    items: list[str | None] = []
    at = _after_spaces(word, 1)
    if word[at:] == "}":
        return items
    while True:
        at = _after_spaces(word, at)
        if word[at : at + 1] == "{":
            raise UnsupportedError("arrays of more than one dimension are not supported")
        found = _QUOTED_ITEM.match(word, at) or _PLAIN_ITEM.match(word, at)
        if found is None:
            raise malformed
        if found[0].startswith('"'):
            items.append(_ESCAPED.sub(r"\1", found[1]))
        else:
            item = _trimmed(found[0])
            if not item:
                raise malformed
            items.append(None if item.upper() == "NULL" else _ESCAPED.sub(r"\1", item))
        at = _after_spaces(word, found.end())
        if word[at:] == "}":
            return items
        if word[at : at + 1] != ",":
            raise malformed
        at += 1


_QUOTED_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PLAIN_ITEM = re.compile(r'(?:[^,"{}\\]|\\.)+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _after_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACES:
        at += 1
    return at


def _trimmed(item: str) -> str:
    """Return an item without the spaces at its end; one that is escaped stays."""
    bare = item.rstrip(_SPACES)
    escapes = len(bare) - len(bare.rstrip("\\"))
    return item[: len(bare) + 1] if escapes % 2 else bare


_READERS: dict[str, Callable[[str, SqlType], object]] = {
    "bool": _boolean,
    "int2": _integer,
    "int4": _integer,
    "int8": _integer,
    "float4": _float,
    "float8": _float,
    "numeric": _numeric,
    "text": _text,
    "varchar": _text,
    "bpchar": _text,
    "name": _text,
    "bytea": _bytes,
    "date": lambda text, wanted: read_date(text),
    "time": lambda text, wanted: read_time(text),
    "timestamp": lambda text, wanted: read_timestamp(text),
    "timestamptz": lambda text, wanted: read_timestamptz(text),
    "interval": lambda text, wanted: read_interval(text),
    "uuid": _uuid,
    "json": _json,
    "jsonb": _json,
}
