"""The order of a step's records in its commit: by cursor, the messages about a row have the order of its changes.

A commit has batches one after another, and the cursor counts their records in that order. A batch is of one partition, so the
messages about a row whose changes go to several partitions, of one topic or of many, would have the order of the partitions.
Therefore the batches of a step are in **layers**, one after the other, and within a layer in the order of partitions. A record
goes to the lowest layer in which it comes after the previous record of its partition, and after all records of earlier changes
of its row. One layer is enough as long as rows stay in their partitions, as nearly all do.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int32, int64

from tailrace.wire.kernel_compiler import compiled

Longs = npt.NDArray[np.int64]


def layers_of(
    keys: pa.Array, places: Sequence[Longs], partitions: Sequence[npt.NDArray[np.int32]], counts: Sequence[int]
) -> list[Longs] | None:
    """Return the layer of each record, by topic; `None` if one layer is enough.

    `keys` are the primary keys of the step's changes. For each topic, whose records are in the order of their changes: `places`
    are the indices of the changes, `partitions` those of the records, and `counts` how many partitions there are.
    """
    slots = [each + first for each, first in zip(partitions, np.cumsum([0, *counts]).tolist(), strict=False)]
    if not slots or all((each == slots[0][0]).all() for each in slots):
        return None
    ends = np.cumsum([len(each) for each in places])
    changes = np.concatenate(places)
    # The records of one topic are in order already.
    order = np.arange(len(changes)) if len(places) == 1 else np.argsort(changes, kind="stable")
    found = keys.dictionary_encode()
    layers = np.empty(len(changes), np.int64)
    highest = _assign(
        changes[order].astype(np.int64),
        np.concatenate(slots)[order].astype(np.int64),
        found.indices.to_numpy(zero_copy_only=False).astype(np.int32),
        np.zeros(sum(counts), np.int64),
        np.full(len(found.dictionary), -1, np.int64),
        np.zeros(len(found.dictionary), np.int64),
        layers,
    )
    if not highest:
        return None
    unordered = np.empty_like(layers)
    unordered[order] = layers
    return np.split(unordered, ends[:-1])


@compiled(int64(int64[::1], int64[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64[::1]))
def _assign(places, slots, rows, slot_layers, row_layers, row_slots, layers):
    """Fill in the layers of records, in the order of their changes, and return the highest one.

    `slot_layers`, `row_layers` and `row_slots` hold the layer of the last record of each partition, and layer and partition of
    the last record about each row.
    """
    highest = 0
    at = 0
    while at < len(places):
        place = places[at]
        row = rows[place]
        before_layer, before_slot = row_layers[row], row_slots[row]
        last_layer, last_slot = before_layer, before_slot
        while at < len(places) and places[at] == place:
            slot = slots[at]
            layer = before_layer + 1 if slot < before_slot else before_layer
            layer = max(layer, slot_layers[slot])
            slot_layers[slot] = layers[at] = layer
            highest = max(highest, layer)
            if layer > last_layer or (layer == last_layer and slot > last_slot):
                last_layer, last_slot = layer, slot
            at += 1
        row_layers[row], row_slots[row] = last_layer, last_slot
    return highest
