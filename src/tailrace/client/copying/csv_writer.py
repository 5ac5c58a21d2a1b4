"""Writes rows of Arrow as CSV, as PostgreSQL's `COPY ... TO` does.

Values have the texts of PostgreSQL's output functions: `t` and `f`, `2026-01-31 11:45:00.5+00`, `\\x0aff`, `{1,NULL,3}`. A null
is the null string without quotes; a text that looks like it gets quotes, so that the two differ. Columns are converted as a
whole where Arrow can.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from tailrace.client.copying.csv_reader import CsvFormat

_DOUBLE_DIGITS = 15
_LARGE = 10.0**_DOUBLE_DIGITS
_REAL_DIGITS = 6
"""Numbers with more digits before the point are written with an exponent."""
_QUOTED_ITEM = re.compile(r'[\s"\\{},]|^$|^null$', re.IGNORECASE)


class CsvWriter:
    def __init__(self, csv: CsvFormat) -> None:
        self._csv = csv
        marks = "".join(re.escape(mark) for mark in (csv.delimiter, csv.quote)) + r"\r\n"
        self._special = f"[{marks}]"
        self._quotes_numbers = bool(csv.null) or not _PLAIN.isdisjoint(csv.delimiter + csv.quote)

    def header(self, names: Sequence[str]) -> bytes:
        import pyarrow as pa

        return self.rows([pa.array([name]) for name in names])

    def rows(self, columns: Sequence[Any]) -> bytes:
        """Return a line for each row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not columns or not len(columns[0]):
            return b""
        fields = [self._fields(column, is_alone=len(columns) == 1) for column in columns]
        lines = pc.binary_join_element_wise(*fields, self._csv.delimiter)
        ended = pc.binary_join_element_wise(lines, pa.scalar("\n"), pa.scalar("")).cast(pa.binary())
        # The values of such an array stand behind each other in one buffer.
        first, last = ended.buffers()[1], ended.offset + len(ended)
        begin, end = (int.from_bytes(first[4 * at : 4 * at + 4].to_pybytes(), "little") for at in (ended.offset, last))
        data: bytes = ended.buffers()[2][begin:end].to_pybytes()
        return data

    def _fields(self, column: Any, *, is_alone: bool) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = as_texts(column)
        csv = self._csv
        if self._quotes_numbers or _may_need_quotes(column.type):
            needed = pc.or_(pc.match_substring_regex(texts, self._special), pc.equal(texts, csv.null))
            if is_alone:
                needed = pc.or_(needed, pc.equal(texts, "\\."))
            if pc.any(needed).as_py():
                inner = texts
                if csv.escape_character != csv.quote:
                    inner = pc.replace_substring(inner, csv.escape_character, csv.escape_character * 2)
                inner = pc.replace_substring(inner, csv.quote, csv.escape_character + csv.quote)
                quote = pa.scalar(csv.quote)
                texts = pc.if_else(needed, pc.binary_join_element_wise(quote, inner, quote, ""), texts)
        return pc.fill_null(texts, csv.null)


_PLAIN = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-.: ")
"""Characters that numbers and times have."""


def _may_need_quotes(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return not (types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind))


def as_texts(column: Any) -> Any:
    """Return an array of texts, as PostgreSQL writes the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return as_texts(column.storage)
    if types.is_dictionary(kind):
        return as_texts(column.dictionary_decode())
    if types.is_string(kind):
        return column
    if types.is_boolean(kind):
        return pc.if_else(column, "t", "f")
    if types.is_integer(kind) or types.is_large_string(kind) or types.is_date32(kind) or types.is_null(kind):
        return column.cast(pa.string())
    if types.is_timestamp(kind):
        return _timestamps(column)
    if types.is_decimal(kind):
        texts = column.cast(pa.string())
        if not pc.any(pc.match_substring(texts, "E")).as_py():
            return texts
    write = _writer(kind)
    return pa.array([None if value is None else write(value) for value in column.to_pylist()], pa.string())


def _timestamps(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.$", "")
    return pc.binary_join_element_wise(texts, "+00", "") if column.type.tz else texts


def _writer(kind: Any) -> Callable[[Any], str]:
    import pyarrow as pa

    types = pa.types
    if types.is_float64(kind):
        return _double_text
    if types.is_floating(kind):
        import numpy as np

        return lambda value: number_text(value, str(np.float32(value)), _REAL_DIGITS)
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _writer(kind.value_type)
        return lambda items: _array_text([None if item is None else _item(inner(item), kind.value_type) for item in items])
    return _value_text


def _array_text(items: Sequence[str | None]) -> str:
    return "{" + ",".join("NULL" if item is None else item for item in items) + "}"


def _item(text: str, kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_list(kind) or not _QUOTED_ITEM.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _value_text(value: Any) -> str:
    match value:
        case bool():
            return "t" if value else "f"
        case bytes():
            return "\\x" + value.hex()
        case Decimal():
            return format(value, "f")
        case datetime():
            text = value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") if value.tzinfo else value.isoformat(" ")
            return _trimmed(text) + ("+00" if value.tzinfo else "")
        case time():
            return _trimmed(value.isoformat())
        case date():
            return value.isoformat()
        case dict() | list():
            import msgspec

            return msgspec.json.encode(value).decode()
    return str(value)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _double_text(value: float) -> str:
    written = repr(value)
    # Python writes most numbers as PostgreSQL does, but for a zero behind the point.
    if 1e-4 <= abs(value) < _LARGE:
        return written.removesuffix(".0")
    return number_text(value, written, _DOUBLE_DIGITS)


def number_text(value: float, shortest: str, digits: int) -> str:
    """Return a floating-point number as PostgreSQL writes it. `shortest` has its shortest exact digits, as Python does."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if not value:
        return "-0" if shortest.startswith("-") else "0"
    number = Decimal(shortest).normalize()
    exponent = number.adjusted()
    if -4 <= exponent < digits:
        return format(number, "f")
    sign, figures, _ = number.as_tuple()
    written = "".join(map(str, figures))
    mantissa = written[0] + (f".{written[1:]}" if len(written) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
