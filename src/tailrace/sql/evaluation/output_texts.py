"""Values as texts, as PostgreSQL's output functions print them."""

import re
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from tailrace.sql.analysis.interval_texts import interval_text
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.functions.float_texts import float4_text, float8_text
from tailrace.sql.functions.json_functions import canonical

Printer = Callable[[Any], str]

_NEEDS_QUOTES = re.compile(r'[{},"\\\s]')


def printer(sql_type: SqlType) -> Printer:
    """Return the function that prints values of a type, as in an array or by `concat`."""
    if sql_type.is_array:
        return _array_printer(printer(sql_type.element))
    return _PRINTERS.get(sql_type.name, str)


def cast_printer(sql_type: SqlType) -> Printer:
    """Return the function that casts values of a type to text. It differs from `printer` for booleans and char(n)."""
    return _CASTS.get(sql_type.name) or printer(sql_type)


def _boolean(value: bool) -> str:
    return "t" if value else "f"


def _numeric(value: Decimal) -> str:
    return format(value, "f") if value.is_finite() else float8_text(float(value))


def timestamp_text(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if value.microsecond else text


def _timestamptz(value: datetime) -> str:
    return f"{timestamp_text(value)}+00"


def _time(value: time) -> str:
    text = value.isoformat()
    return text.rstrip("0") if value.microsecond else text


def _bytes(value: bytes) -> str:
    return f"\\x{value.hex()}"


def _array_printer(element: Printer) -> Printer:
    def print_array(items: list[Any]) -> str:
        return "{" + ",".join("NULL" if item is None else _quoted_item(element(item)) for item in items) + "}"

    return print_array


def _quoted_item(text: str) -> str:
    if text and text.upper() != "NULL" and not _NEEDS_QUOTES.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_PRINTERS: dict[str, Printer] = {
    "bool": _boolean,
    "numeric": _numeric,
    "float4": float4_text,
    "float8": float8_text,
    "bytea": _bytes,
    "time": _time,
    "timestamp": timestamp_text,
    "timestamptz": _timestamptz,
    "interval": interval_text,
    "jsonb": canonical,
}
_CASTS: dict[str, Printer] = {
    "bool": lambda value: "true" if value else "false",
    "bpchar": lambda value: value.rstrip(" "),
}
