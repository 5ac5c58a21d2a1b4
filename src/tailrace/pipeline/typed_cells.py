"""The cells of many rows as typed Arrow columns, as Spark's `from_json` would read them, at a small part of its cost.

Made in tasks only: what is compiled here takes a while to load.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import CorruptBatchError
from tailrace.pipeline.cell_kernels import CellSpans, Longs, bare_strings, longs_in
from tailrace.pipeline.cells import RAW, CellSlots
from tailrace.wire.compiled_fields import binary_array
from tailrace.wire.decoding_kernels import load_decoding_kernels

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
    """Of a slot that holds such values."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))


class TypedCells:
    def __init__(self, slots: CellSlots) -> None:
        self._kinds = slots.kinds
        self._types = [arrow_type(kind) for kind in slots.kinds]
        self._tables = slots.tables
        self._kernels = load_decoding_kernels()

    @property
    def types(self) -> list[pa.DataType]:
        return self._types

    def of(self, table: int, images: Mapping[str, pa.Array]) -> list[pa.Array]:
        """A column for each slot; `images` are the rows before and after, as JSON."""
        rows = len(images["new"])
        columns = [None] * len(self._types)
        for image, slots in self._tables.get(table, {}).items():
            spans = CellSpans(images[image], list(slots))
            for number, slot in enumerate(slots.values()):
                columns[slot] = self._column(spans.data, *spans.of(number), slot)
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


def _unescaped(texts: pa.Array, escaped: npt.NDArray[np.bool_]) -> pa.Array:
    if not escaped.any():
        return texts
    mask = pa.array(escaped)
    decoded = [msgspec.json.decode(f'"{text}"', type=str) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(decoded, pa.string()))
