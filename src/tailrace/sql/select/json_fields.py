"""Fields of JSON that a query reads from the values of records, as columns: `value ->> 'k'`.

Fast path of the functions of `sql/functions/json_paths.py`: one compiled loop reads all fields of a text. It is certain of the
usual ones: objects whose fields of these names are strings without escapes, integers, booleans or null. All other texts are
marked as doubtful, and the query reads them by the exact functions. `tests/property/test_json_fields.py` holds both equal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sql.analysis.tree import AnalyzedQuery, Call, Cast, ColumnReference, Constant
from tailrace.sql.functions.json_paths import INTEGER_CASTS, is_native_key
from tailrace.wire.arrow_decoding import Int64Array, RecordFields, RecordSpans, Uint8Array

VALUE = "value"
DOUBTFUL = "value?"
"""The column that tells which values the exact functions must read."""
_FIELD_CALLS = frozenset(("jsonb ->> text", "jsonb_object_field_text(jsonb, text)"))
_MAX_KEYS = 16


class JsonKernels(NamedTuple):
    """The compiled loops: those of `json_kernels`, and two of `wire/decoding_kernels.py`."""

    find_fields: Callable[..., None]
    read_integers: Callable[..., None]
    are_text: Callable[..., bool]
    copied: Callable[[Uint8Array, Int64Array, Int64Array], pa.Array]
    """Returns parts of bytes as a column, with a null where the size is below 0."""


class FieldCertainty(IntEnum):
    """What the loops know of the fields of a value."""

    CERTAIN = 0
    DOUBTFUL = 1
    CERTAIN_IF_TEXT = 2
    """They are certain if all bytes of the value are UTF-8."""


class RecordUse(NamedTuple):
    """What a query uses of the values of a topic."""

    keys: Sequence[str]
    is_read_otherwise: bool
    """Whether it uses the values in another way too."""
    integers: Sequence[str] = ()
    """The keys whose fields it casts to integers."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The column of each key."""
        return {key: f"{VALUE}->>{key}" for key in self.keys}

    @property
    def integer_columns(self) -> Mapping[str, str]:
        """The column of each key that is cast to integers. It is null where a field is not written as a plain integer."""
        return {key: f"({VALUE}->>{key})::bigint" for key in self.integers}


def record_uses(query: AnalyzedQuery, relations: Iterable[int]) -> dict[int, RecordUse]:
    """Return what the query uses of the values of these relations, as far as it reads fields of them."""
    keys: dict[int, dict[str, None]] = {number: {} for number in relations}
    integers: dict[int, dict[str, None]] = {number: {} for number in relations}
    others: set[int] = set()
    for node in _nodes(query):
        field = _field(node)
        if field is not None and field.relation in keys:
            keys[field.relation][field.key] = None
        cast = _field(node.argument) if isinstance(node, Cast) and node.type.name in INTEGER_CASTS else None
        if cast is not None and cast.relation in integers:
            integers[cast.relation][cast.key] = None
        if field is None and not _is_json(node):
            others.update(number for child in _children(node) if (number := _value_of(_source(child))) is not None)
    return {
        number: RecordUse(
            read := list(found)[:_MAX_KEYS],
            number in others or len(found) > _MAX_KEYS,
            [key for key in integers[number] if key in read],
        )
        for number, found in keys.items()
        if found
    }


class _Field(NamedTuple):
    """A field of the JSON in the values of a relation."""

    relation: int
    key: str


def _field(node: object) -> _Field | None:
    """Return the field that a node reads as text, if it is one: `value ->> 'key'`."""
    if not isinstance(node, Call) or node.signature.key not in _FIELD_CALLS:
        return None
    source, step = node.arguments
    if not isinstance(source, Cast) or source.is_explicit or source.type.name != "jsonb":
        return None
    relation = _value_of(source.argument)
    if relation is None or not isinstance(step, Constant) or not isinstance(step.value, str) or not is_native_key(step.value):
        return None
    return _Field(relation, step.value)


def _is_json(node: object) -> bool:
    """Return whether a node is a value as JSON; what is read of that is up to the node that it belongs to."""
    return isinstance(node, Cast) and _value_of(node.argument) is not None


def _source(node: object) -> object:
    return node.argument if isinstance(node, Cast) else node


def _value_of(node: object) -> int | None:
    """Return the relation of which a node is the value of a record."""
    return node.relation if isinstance(node, ColumnReference) and node.column == VALUE and node.is_json_text else None


def _children(node: object) -> Iterator[object]:
    waiting = [getattr(node, field.name) for field in fields(node)]  # type: ignore[arg-type]
    while waiting:
        child = waiting.pop()
        if isinstance(child, list | tuple):
            waiting.extend(child)
        elif is_dataclass(child):
            yield child


def _nodes(root: object) -> Iterator[object]:
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(_children(node))


class JsonFieldReader:
    """Reads the fields that a query uses from the values of records, where they lie in the batches."""

    def __init__(self, use: RecordUse, kernels: Callable[[], JsonKernels | None]) -> None:
        """`kernels` returns the loops once they are loaded. Until then all values are doubtful."""
        self._use = use
        self._kernels = kernels
        encoded = [key.encode() for key in use.keys]
        self._keys = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        self._key_ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)

    @property
    def schema(self) -> Sequence[tuple[str, pa.DataType]]:
        value = () if self._use.is_read_otherwise else ((VALUE, pa.string()),)
        texts = ((name, pa.string()) for name in self._use.columns.values())
        integers = ((name, pa.int64()) for name in self._use.integer_columns.values())
        return [*value, (DOUBTFUL, pa.bool_()), *texts, *integers]

    def columns(self, fields: RecordFields, rows: int) -> Sequence[pa.Array]:
        """Return the doubtful values, unless all values are read anyway, which ones these are, and the fields of the others."""
        kernels = self._kernels()
        spans = fields.spans.get(VALUE)
        if kernels is None or spans is None:
            certainty = np.full(rows, FieldCertainty.DOUBTFUL, np.uint8)
            found = [pa.nulls(rows, kind) for name, kind in self.schema if name not in (VALUE, DOUBTFUL)]
        else:
            certainty, found = self._found(kernels, spans)
        doubtful = pa.array(certainty == FieldCertainty.DOUBTFUL)
        if self._use.is_read_otherwise:
            return [doubtful, *found]
        values = pa.nulls(rows, pa.string())
        if doubtful.true_count:
            values = pc.if_else(doubtful, fields.text(VALUE), pa.scalar(None, pa.string()))
        return [values, doubtful, *found]

    def _found(self, kernels: JsonKernels, spans: RecordSpans) -> tuple[Uint8Array, list[pa.Array]]:
        data = spans.data
        shape = len(self._use.keys), len(spans.places)
        places, sizes = np.empty(shape, np.int64), np.empty(shape, np.int64)
        certainty = np.empty(len(spans.places), np.uint8)
        kernels.find_fields(*spans, self._keys, self._key_ends, places.reshape(-1), sizes.reshape(-1), certainty)
        unsure = certainty == FieldCertainty.CERTAIN_IF_TEXT
        if unsure.any():
            is_text = np.empty(len(unsure), np.bool_)
            if not kernels.are_text(data, spans.places, np.where(unsure, spans.sizes, 0), is_text):
                certainty[~is_text] = FieldCertainty.DOUBTFUL
                sizes[:, ~is_text] = -1
        by_key = dict(zip(self._use.keys, zip(places, sizes, strict=True), strict=True))
        texts = [kernels.copied(data, *span).view(pa.string()) for span in by_key.values()]
        return certainty, [*texts, *(_integers(kernels, data, *by_key[key]) for key in self._use.integers)]


def _integers(kernels: JsonKernels, data: Uint8Array, places: Int64Array, sizes: Int64Array) -> pa.Array:
    """Return the fields that are integers, written plainly, as numbers, and null for all others."""
    integers, are_known = np.empty(len(places), np.int64), np.empty(len(places), np.bool_)
    kernels.read_integers(data, places, sizes, integers, are_known)
    return pa.array(integers, mask=None if are_known.all() else ~are_known)
