"""JSON as PostgreSQL's jsonb keeps it: numbers with all their digits, the last of equal keys, keys ordered by length.

A document is a `dict`, `list`, `str`, `bool`, `None`, or a number as an `int` or `Decimal`.
"""

import re
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import msgspec

from tailrace.sql.analysis.errors import INVALID_TEXT, OUT_OF_RANGE, AnalysisError

_MAX_WHOLE_DIGITS = 131_072
_MAX_SCALE = 16_383
_INTEGER = re.compile(r"[ \t\n\r\v\f]*[+-]?\d+")
_NUL_ESCAPE = "\\u0000"


class JsonError(AnalysisError):
    """The text of the exception begins with PostgreSQL's code in brackets."""

    def __str__(self) -> str:
        return f"[{self.sqlstate}] {self.message}"


def read_document(text: str) -> Any:
    """Return the document of a text. Raises `JsonError` where PostgreSQL's jsonb does not accept it."""
    try:
        document = _DECODER.decode(text)
        has_nul = _NUL_ESCAPE in text and _has_nul(document)
    except RecursionError:
        raise too_deep() from None
    except msgspec.ValidationError:
        raise JsonError("0A000", "a JSON number of more than 4,300 digits is not supported") from None
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise JsonError(INVALID_TEXT, "invalid input syntax for type json") from None
    if has_nul:
        raise JsonError("22P05", "unsupported Unicode escape sequence")
    return document


def document_text(document: Any) -> str:
    """Return a document as PostgreSQL prints it."""
    try:
        return _written(document)
    except RecursionError:
        raise too_deep() from None


def number_text(number: int | Decimal) -> str:
    """Return a number without an exponent. There is no negative zero."""
    if isinstance(number, int):
        return str(number)
    return format(number if number else abs(number), "f")


def quoted_string(text: str) -> str:
    """Return a JSON string as PostgreSQL escapes it."""
    return encode_basestring(text)


def ordered_keys(document: dict[str, Any]) -> list[str]:
    """Return the keys of an object in PostgreSQL's order: by their length in bytes, then by their bytes."""
    keys = sorted(document)
    if all(map(str.isascii, keys)):
        keys.sort(key=len)
    else:
        keys.sort(key=_length_and_bytes)
    return keys


def _length_and_bytes(key: str) -> tuple[int, bytes]:
    raw = key.encode()
    return len(raw), raw


def index_of(step: str) -> int | None:
    """Return the index of an array's item that an element of a path means, or `None`."""
    if not _INTEGER.fullmatch(step):
        return None
    index = int(step)
    return index if -(1 << 31) <= index < 1 << 31 else None


def too_deep() -> JsonError:
    return JsonError("54001", "stack depth limit exceeded: the JSON document is nested too deeply")


def _number(text: str) -> Decimal:
    value = Decimal(text)
    exponent = int(value.as_tuple().exponent)
    if value.adjusted() >= _MAX_WHOLE_DIGITS or exponent < -_MAX_SCALE or exponent > _MAX_WHOLE_DIGITS:
        raise JsonError(OUT_OF_RANGE, "value overflows numeric format")
    return value


_DECODER = msgspec.json.Decoder(float_hook=_number)


def _written(document: Any) -> str:
    kind = type(document)
    if kind is str:
        return encode_basestring(document)
    if kind is dict:
        return "{" + ", ".join([f"{encode_basestring(key)}: {_written(document[key])}" for key in ordered_keys(document)]) + "}"
    if kind is list:
        return "[" + ", ".join([_written(item) for item in document]) + "]"
    if document is None:
        return "null"
    if kind is bool:
        return "true" if document else "false"
    return number_text(document)


def _has_nul(document: Any) -> bool:
    if isinstance(document, str):
        return "\0" in document
    if isinstance(document, dict):
        return any("\0" in key or _has_nul(value) for key, value in document.items())
    return isinstance(document, list) and any(map(_has_nul, document))
