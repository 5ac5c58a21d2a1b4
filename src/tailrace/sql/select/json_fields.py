"""Fields of JSON that a query reads from the values of records, as columns: `value ->> 'k'`.

Fast path of the functions of `sql/functions/json_paths.py`: one compiled loop reads all fields of a text. It is certain of the
usual ones: objects whose fields of these names are strings without escapes, integers, booleans or null. All other texts are
marked as doubtful, and the query reads them by the exact functions. `tests/property/test_json_fields.py` holds both equal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sql.analysis.tree import AnalyzedQuery, Call, Cast, ColumnReference, Constant
from tailrace.sql.functions.json_paths import is_native_key
from tailrace.wire.arrow_decoding import Int64Array, Uint8Array

VALUE = "value"
DOUBTFUL = "value?"
"""The column that tells which values the exact functions must read."""
_FIELD_CALLS = frozenset(("jsonb ->> text", "jsonb_object_field_text(jsonb, text)"))
_MAX_KEYS = 16


class JsonKernels(NamedTuple):
    """The compiled loops."""

    find_fields: Callable[..., None]
    """See `json_kernels`."""
    spans: Callable[[Uint8Array, Int64Array, Int64Array], pa.Array]
    """Returns parts of bytes as a column, with a null where the size is below 0."""


class RecordUse(NamedTuple):
    """What a query uses of the values of a topic."""

    keys: Sequence[str]
    is_read_otherwise: bool
    """Whether it uses the values in another way too."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The column of each key."""
        return {key: f"{VALUE}->>{key}" for key in self.keys}


def record_uses(query: AnalyzedQuery, relations: Iterable[int]) -> dict[int, RecordUse]:
    """Return what the query uses of the values of these relations, as far as it reads fields of them."""
    keys: dict[int, dict[str, None]] = {number: {} for number in relations}
    others: set[int] = set()
    for node in _nodes(query):
        for child in _children(node):
            number = _value_of(child)
            if number is not None and not isinstance(node, Cast):
                others.add(number)
            elif isinstance(child, Cast) and (number := _value_of(child.argument)) is not None:
                key = _key(node) if isinstance(node, Call) and node.arguments[0] is child else None
                if key is not None and number in keys and not child.is_explicit and child.type.name == "jsonb":
                    keys[number][key] = None
                else:
                    others.add(number)
    return {
        number: RecordUse(list(found)[:_MAX_KEYS], number in others or len(found) > _MAX_KEYS)
        for number, found in keys.items()
        if found
    }


def _value_of(node: object) -> int | None:
    """Return the relation of which a node is the value of a record."""
    return node.relation if isinstance(node, ColumnReference) and node.column == VALUE and node.is_json_text else None


def _key(call: Call) -> str | None:
    if call.signature.key not in _FIELD_CALLS:
        return None
    step = call.arguments[1]
    if isinstance(step, Constant) and isinstance(step.value, str) and is_native_key(step.value):
        return step.value
    return None


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
    """Adds the columns of fields to batches of records."""

    def __init__(self, use: RecordUse) -> None:
        self._use = use
        encoded = [key.encode() for key in use.keys]
        self._keys = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        self._key_ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
        self._key_ends.flags.writeable = False

    @property
    def schema(self) -> list[tuple[str, pa.DataType]]:
        """The columns that are added."""
        return [(DOUBTFUL, pa.bool_()), *((name, pa.string()) for name in self._use.columns.values())]

    def columns(self, texts: pa.StringArray, kernels: JsonKernels | None) -> tuple[pa.Array, list[pa.Array]]:
        """Return the values that are still needed, and the columns that are added."""
        rows = len(texts)
        if kernels is None or not rows:
            return texts, [pa.array(np.ones(rows, np.bool_)), *(pa.nulls(rows, pa.string()) for _ in self._use.keys)]
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + rows + 1]
        text = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
        shape = len(self._use.keys), rows
        places, sizes = np.empty(shape, np.int64), np.empty(shape, np.int64)
        doubtful = np.empty(rows, np.uint8)
        kernels.find_fields(text, ends, self._keys, self._key_ends, places, sizes, doubtful)
        is_doubtful = pa.array(doubtful.astype(np.bool_))
        found = [kernels.spans(text, places[at], sizes[at]).view(pa.string()) for at in range(len(self._use.keys))]
        if not self._use.is_read_otherwise:
            texts = _only(texts, is_doubtful) if doubtful.any() else pa.nulls(rows, pa.string())
        return texts, [is_doubtful, *found]


def _only(texts: pa.StringArray, are_wanted: pa.BooleanArray) -> pa.Array:
    return pc.if_else(are_wanted, texts, pa.scalar(None, pa.string()))
