"""Cells of many JSON rows as typed Arrow columns, as Spark's `from_json` would read them, at a small part of its cost.

Compiled loops find only the cells that routes name, and read a row no further than these. A row is an object as `msgspec`
writes it, without white space; names are compared as they are written, with their escapes. For tasks only: the loops are slow
to load.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import boolean, int64

from tailrace.model.errors import CorruptBatchError
from tailrace.pipeline.plan import RAW, CellRef, CellSlots
from tailrace.wire.decoding_kernels import load_decoding_kernels
from tailrace.wire.fast_arrow_decoding import binary_array
from tailrace.wire.kernel_compiler import READONLY_BYTES, compiled

Longs = npt.NDArray[np.int64]

_QUOTE, _BACKSLASH, _COLON, _COMMA = 34, 92, 58, 44
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_SMALL_N, _SMALL_T, _MINUS, _ZERO, _NINE = 110, 116, 45, 48, 57


class CellSpans:
    """The positions of some columns' cells in the JSON of rows."""

    def __init__(self, rows: pa.Array, columns: Sequence[str]) -> None:
        _, ends, data = rows.buffers()
        self.data = np.frombuffer(data or b"", np.uint8)
        self.data.flags.writeable = False
        names = [msgspec.json.encode(column)[1:-1] for column in columns]
        self._places = np.full((len(columns), len(rows)), -1, np.int64)
        self._sizes = np.full((len(columns), len(rows)), -1, np.int64)
        bad = _find(
            self.data,
            np.frombuffer(ends, np.int32)[rows.offset : rows.offset + len(rows) + 1].astype(np.int64),
            np.frombuffer(b"".join(names), np.uint8),
            np.cumsum([0, *map(len, names)]),
            self._places,
            self._sizes,
        )
        if bad >= 0:
            raise CorruptBatchError(f"{rows[bad].as_py()[:100]!r} is not the row of a change")

    def of(self, number: int) -> tuple[Longs, Longs]:
        """Return position and size of a column's cells, as JSON. The size is -1 if the cell is null or missing."""
        return self._places[number], self._sizes[number]


def longs_in(data: npt.NDArray[np.uint8], places: Longs, sizes: Longs) -> Longs:
    """Parse cells as whole numbers; 0 where there is none."""
    found = np.empty(len(places), np.int64)
    bad = _longs(data, places, sizes, found)
    if bad >= 0:
        cell = data[places[bad] : places[bad] + sizes[bad]].tobytes()
        raise CorruptBatchError(f"{cell[:100]!r} in the row of a change is not a 64-bit integer")
    return found


def bare_strings(data: npt.NDArray[np.uint8], places: Longs, sizes: Longs) -> npt.NDArray[np.bool_]:
    """Remove the quotes of strings, in place. Return which strings have escapes."""
    escaped = np.empty(len(places), np.bool_)
    _bare(data, places, sizes, escaped)
    return escaped


@compiled(int64(READONLY_BYTES, int64, int64))
def _string_end(data, at, stop):
    """Return the position after the closing quote of the string that starts here; `stop` if there is none."""
    at += 1
    while at < stop and data[at] != _QUOTE:
        at += 2 if data[at] == _BACKSLASH else 1
    return min(at + 1, stop)


@compiled(int64(READONLY_BYTES, int64, int64))
def _value_end(data, at, stop):
    """Return the position after the value that starts here."""
    if data[at] == _QUOTE:
        return _string_end(data, at, stop)
    depth = 0
    while at < stop:
        byte = data[at]
        if byte == _QUOTE:
            at = _string_end(data, at, stop)
            continue
        if byte in (_OPEN_OBJECT, _OPEN_LIST):
            depth += 1
        elif byte in (_CLOSE_OBJECT, _CLOSE_LIST):
            if depth == 0:
                return at
            depth -= 1
        elif byte == _COMMA and depth == 0:
            return at
        at += 1
    return stop


@compiled(boolean(READONLY_BYTES, int64, int64, READONLY_BYTES, int64, int64))
def _same(data, at, stop, names, first, last):
    if stop - at != last - first:
        return False
    for place in range(last - first):  # noqa: SIM110  the compiler knows no generators
        if data[at + place] != names[first + place]:
            return False
    return True


@compiled(int64(READONLY_BYTES, int64[::1], READONLY_BYTES, int64[::1], int64[:, ::1], int64[:, ::1]))
def _find(data, ends, names, name_ends, places, sizes):
    """Find the cells in every row. Return the first invalid row, or -1. Empty rows have no cells."""
    wanted = len(name_ends) - 1
    for row in range(len(ends) - 1):
        at, stop = ends[row], ends[row + 1]
        if at == stop:
            continue
        if data[at] != _OPEN_OBJECT or data[stop - 1] != _CLOSE_OBJECT:
            return row
        at += 1
        missing = wanted
        while missing > 0 and at < stop - 1:
            if data[at] != _QUOTE:
                return row
            name = at + 1
            at = _string_end(data, at, stop)
            name_stop = at - 1
            if at >= stop - 1 or data[at] != _COLON:
                return row
            first = at + 1
            at = _value_end(data, first, stop)
            if at >= stop or (data[at] != _COMMA and at != stop - 1):
                return row
            for number in range(wanted):
                if _same(data, name, name_stop, names, name_ends[number], name_ends[number + 1]):
                    if data[first] != _SMALL_N:
                        places[number, row] = first
                        sizes[number, row] = at - first
                    missing -= 1
                    break
            at += 1
    return -1


@compiled(int64(READONLY_BYTES, int64[::1], int64[::1], int64[::1]))
def _longs(data, places, sizes, found):
    """Parse whole numbers. Return the first invalid cell, or -1."""
    for row in range(len(places)):
        found[row] = 0
        if sizes[row] < 0:
            continue
        at, stop = places[row], places[row] + sizes[row]
        negative = data[at] == _MINUS
        if negative:
            at += 1
        if at == stop or stop - at > 19:
            return row
        # As a negative number, because the smallest one has no positive counterpart.
        value = 0
        for place in range(at, stop):
            digit = int64(data[place])
            if digit < _ZERO or digit > _NINE:
                return row
            value = value * 10 - (digit - _ZERO)
            if value > 0:
                return row
        if not negative:
            value = -value
            if value < 0:
                return row
        found[row] = value
    return -1


@compiled(int64(READONLY_BYTES, int64[::1], int64[::1], boolean[::1]))
def _bare(data, places, sizes, escaped):
    for row in range(len(places)):
        escaped[row] = False
        if sizes[row] < 2 or data[places[row]] != _QUOTE:
            continue
        places[row] += 1
        sizes[row] -= 2
        for at in range(places[row], places[row] + sizes[row]):
            if data[at] == _BACKSLASH:
                escaped[row] = True
                break
    return 0


_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    RAW: pa.string(),
}
_TRUE = ord("t")


def arrow_type(kind: str) -> pa.DataType:
    """Return the column type of a slot of this kind."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))


class TypedCells:
    def __init__(self, slots: CellSlots) -> None:
        self._kinds = slots.kinds
        self._types = [arrow_type(kind) for kind in slots.kinds]
        self._tables = slots.tables
        self._slots = slots
        self._kernels = load_decoding_kernels()

    @property
    def types(self) -> list[pa.DataType]:
        return self._types

    def of(self, table: int, images: Mapping[str, pa.Array], cursors: Longs) -> list[pa.Array]:
        """Return a column for each slot. `images` are the rows before and after the changes, as JSON, at these cursors."""
        rows = len(images["new"])
        columns = [None] * len(self._types)
        for image, slots in self._tables.get(table, {}).items():
            spans = CellSpans(images[image], list(slots))
            for number, (column, slot) in enumerate(slots.items()):
                places, sizes = spans.of(number)
                used = self._slots.uses_of(table, CellRef(image, column))
                if used:
                    sizes[~_is_within(cursors, used)] = -1
                columns[slot] = self._column(spans.data, places, sizes, slot)
        return [pa.nulls(rows, kind) if column is None else column for column, kind in zip(columns, self._types, strict=True)]

    def _column(self, data: npt.NDArray[np.uint8], places: Longs, sizes: Longs, slot: int) -> pa.Array:
        kind, type_ = self._kinds[slot], self._types[slot]
        if not len(data):
            return pa.nulls(len(places), type_)
        try:
            if kind == "boolean":
                return pa.array(data[np.maximum(places, 0)] == _TRUE, mask=sizes < 0)
            if pa.types.is_integer(type_):
                return pa.array(longs_in(data, places, sizes), mask=sizes < 0).cast(type_)
            if kind in ("double", RAW):
                return self._texts(data, places, sizes).cast(type_)
            escaped = bare_strings(data, places, sizes)
            return _unescaped(self._texts(data, places, sizes), escaped).cast(type_)
        except pa.ArrowInvalid as error:
            raise CorruptBatchError(f"a cell in the row of a change does not fit its column: {error}") from error

    def _texts(self, data: npt.NDArray[np.uint8], places: Longs, sizes: Longs) -> pa.Array:
        return binary_array(self._kernels, data, places, sizes).view(pa.string())


def _is_within(cursors: Longs, periods: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Return which of the cursors are between those of a period."""
    found = np.zeros(len(cursors), np.bool_)
    for since, until in periods:
        found |= (cursors > since) & (cursors < until)
    return found


def _unescaped(texts: pa.Array, escaped: npt.NDArray[np.bool_]) -> pa.Array:
    if not escaped.any():
        return texts
    mask = pa.array(escaped)
    decoded = [msgspec.json.decode(f'"{text}"', type=str) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(decoded, pa.string()))
