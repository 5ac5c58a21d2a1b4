"""Compares compacted partitions by what they mean: the last record of each key.

Compaction may have removed any record that has a later one with the same key, on each side another, and tombstones after a
while. So tombstones count as no record, and keys that were written again behind the compared end are left out. Keys are known
by their digests and compared in as many passes as it takes to keep `_MOST_KEYS` of them in memory.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailrace.shadow.cluster import KafkaCluster
from tailrace.shadow.contents import Span, digests
from tailrace.wire.record_digests import DIGESTS, HAS_KEY, HAS_VALUE, RecordDigests

_MOST_KEYS = 2_000_000


class KeyDifference(NamedTuple):
    origin_offset: int | None
    target_offset: int | None


class KeyComparison(NamedTuple):
    keys: int
    target_keys: int
    difference: KeyDifference | None
    """Of the key whose record comes first."""


class _Side(NamedTuple):
    """A part of a partition, and where the partition ends now."""

    cluster: KafkaCluster
    span: Span
    end: int


async def compare_keys(
    origin: KafkaCluster,
    origin_span: Span,
    origin_end: int,
    target: KafkaCluster,
    target_span: Span,
    target_end: int,
    on_progress: Callable[[int], None],
) -> KeyComparison:
    """Compare the last records of keys. Both sides are read up to their ends, which lie at or behind those of the spans."""
    ours, theirs = _Side(origin, origin_span, origin_end), _Side(target, target_span, target_end)
    passes = 1
    while True:
        found = await _compare_in(passes, ours, theirs, on_progress)
        if found is not None:
            return found
        passes *= 2


async def _compare_in(passes: int, ours: _Side, theirs: _Side, on_progress: Callable[[int], None]) -> KeyComparison | None:
    """Compare in so many passes. Return `None` if there are too many keys for that."""
    keys = target_keys = 0
    first: KeyDifference | None = None
    for number in range(passes):
        left = await _last_records(ours, passes, number, on_progress if number == 0 else _ignore)
        right = await _last_records(theirs, passes, number, _ignore)
        if left is None or right is None:
            return None
        changed = np.union1d(_behind(left, ours), _behind(right, theirs))
        left, right = _live(left, changed), _live(right, changed)
        keys += len(left)
        target_keys += len(right)
        difference = _first_difference(left, right)
        if difference is not None and (first is None or _place(difference) < _place(first)):
            first = difference
    return KeyComparison(keys, target_keys, first)


async def _last_records(side: _Side, passes: int, number: int, on_progress: Callable[[int], None]) -> RecordDigests | None:
    """Return the last record of each key that this pass is about, by key; `None` if these are too many."""
    found = np.empty(0, DIGESTS)
    span = side.span._replace(stop=max(side.end, side.span.stop))
    position = span.start
    async with aclosing(digests(side.cluster, {span.partition: span})) as parts:
        async for part, rows in parts:
            on_progress(part.position - position)
            position = part.position
            mine = rows[(rows["kind"] & HAS_KEY != 0) & (rows["key"] % passes == number)]
            both = np.concatenate([found, mine])[::-1]
            _, last = np.unique(both["key"], return_index=True)
            found = both[last]
            if len(found) > _MOST_KEYS:
                return None
    return found[np.argsort(found["offset"])]


def _behind(rows: RecordDigests, side: _Side) -> NDArray[np.int64]:
    """Return the keys that were written again behind what is compared."""
    keys: NDArray[np.int64] = rows["key"][rows["offset"] >= side.span.stop]
    return keys


def _live(rows: RecordDigests, changed: NDArray[np.int64]) -> RecordDigests:
    """Return the rows that have a value and a key that was not written again, by key."""
    found = rows[(rows["kind"] & HAS_VALUE != 0) & ~np.isin(rows["key"], changed)]
    in_order: RecordDigests = found[np.argsort(found["key"])]
    return in_order


def _first_difference(left: RecordDigests, right: RecordDigests) -> KeyDifference | None:
    at = np.searchsorted(right["key"], left["key"])
    at[at == len(right)] = 0
    has_both = (right["key"][at] == left["key"]) if len(right) else np.zeros(len(left), bool)
    differs = ~has_both
    differs[has_both] = right["digest"][at[has_both]] != left["digest"][has_both]
    missing = ~np.isin(right["key"], left["key"])
    candidates = []
    if differs.any():
        index = int(np.argmin(np.where(differs, left["offset"], np.iinfo(np.int64).max)))
        there = int(right["offset"][at[index]]) if has_both[index] else None
        candidates.append(KeyDifference(int(left["offset"][index]), there))
    if missing.any():
        candidates.append(KeyDifference(None, int(right["offset"][missing].min())))
    return min(candidates, key=_place, default=None)


def _place(difference: KeyDifference) -> int:
    offset = difference.target_offset if difference.origin_offset is None else difference.origin_offset
    return offset or 0


def _ignore(_: int) -> None:
    pass
