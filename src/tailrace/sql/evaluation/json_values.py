"""JSON as values: parsed with the digits of its numbers, and printed as PostgreSQL prints jsonb."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.sql.evaluation.functions import EvaluationError

MAX_JSON_DEPTH = 500


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Numbers are `int` and `Decimal`. Raises `EvaluationError` if it is not JSON."""
    try:
        value = _decode(text)
    except ValueError:
        raise EvaluationError("22P02", "invalid input syntax for type json") from None
    except RecursionError:
        raise EvaluationError("54001", "the JSON text is nested too deeply") from None
    if "\\u" in text:
        _check_texts(value)
    return value


def dump_json(value: Any) -> str:
    """Return the text of a value as PostgreSQL prints jsonb: with spaces, short names first."""
    out: list[str] = []
    _dump(value, out.append, 0)
    return "".join(out)


def normal_json(text: str) -> str:
    """Return a JSON text as PostgreSQL prints jsonb."""
    return dump_json(parse_json(text))


def stored_order(name: str) -> tuple[int, bytes]:
    """Return what names of an object are sorted by in jsonb."""
    raw = name.encode()
    return len(raw), raw


def quoted_json(text: str) -> str:
    """Return a text as JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\x7f")


def number_text(value: int | Decimal) -> str:
    return str(value) if isinstance(value, int) else format(value, "f")


def _dump(value: Any, write: Callable[[str], None], depth: int) -> None:
    if depth > MAX_JSON_DEPTH:
        raise EvaluationError("54001", "the JSON value is nested too deeply")
    match value:
        case None:
            write("null")
        case bool():
            write("true" if value else "false")
        case str():
            write(quoted_json(value))
        case int() | Decimal():
            write(number_text(value))
        case list():
            for at, item in enumerate(value):
                write(", " if at else "[")
                _dump(item, write, depth + 1)
            write("]" if value else "[]")
        case _:
            for at, name in enumerate(sorted(value, key=stored_order)):
                write(", " if at else "{")
                write(f"{quoted_json(name)}: ")
                _dump(value[name], write, depth + 1)
            write("}" if value else "{}")


def _constant(name: str) -> Any:
    raise ValueError(name)


def _number(text: str) -> int | Decimal:
    value = Decimal(text)
    if value.adjusted() > 100_000:
        raise EvaluationError("22003", "value overflows numeric format")
    # A zero has no sign in PostgreSQL.
    value = value if value else abs(value)
    return value.quantize(Decimal(1)) if 0 < int(value.as_tuple().exponent) <= 20 else value


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) < 4_000 else Decimal(text)


_decode = json.JSONDecoder(parse_float=_number, parse_int=_integer, parse_constant=_constant).decode


def _check_texts(value: Any) -> None:
    """Raise an error if a text has a character that PostgreSQL can't store."""
    if isinstance(value, str):
        if "\0" in value:
            raise EvaluationError("22P05", "unsupported Unicode escape sequence: \\u0000 cannot be converted to text.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise EvaluationError("22P02", "invalid input syntax for type json: Unicode surrogates must come in pairs.")
    elif isinstance(value, list):
        for item in value:
            _check_texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_texts(name)
            _check_texts(item)
