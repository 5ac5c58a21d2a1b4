"""Finds out by comparing contents how far a partition is copied, where its position in the target is lost.

Offsets of a group can be deleted or reset by anybody, and expire while nothing is copied for a week. Then the records of the
target themselves say how far the copy came: they must be records of the origin, in order and without a gap. If they are, the
next record of the origin is the next to copy. If not, somebody else has written them, and nothing is copied.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailrace.shadow.cluster import KafkaCluster
from tailrace.shadow.contents import Span, SpanPart, digests
from tailrace.shadow.positions import OffsetMap
from tailrace.wire.record_digests import DIGESTS, RecordDigests

_NEEDLE_RECORDS = 1_000
"""So many records in a row show where two partitions begin to be the same, if one of them has lost its first ones."""


class Match(NamedTuple):
    """The target's records are those of the origin up to the position."""

    position: int
    target_end: int
    offsets: OffsetMap


class Mismatch(NamedTuple):
    """The target has a record that the origin does not have there."""

    target_offset: int


async def match_contents(origin: KafkaCluster, origin_span: Span, target: KafkaCluster, target_span: Span) -> Match | Mismatch:
    """Compare all records of the target with those of the origin. Retention may have removed the beginning of one side."""
    ours = await _first(origin, origin_span)
    theirs = await _first(target, target_span)
    if not len(theirs):
        return Match(origin_span.start, 0, OffsetMap())
    common = min(len(ours), len(theirs))
    if not common or (ours["digest"][:common] != theirs["digest"][:common]).any():
        at_origin = await _find(origin, origin_span, theirs["digest"])
        at_target = await _find(target, target_span, ours["digest"]) if at_origin is None and common else None
        if at_origin is not None:
            origin_span = origin_span._replace(start=at_origin)
        elif at_target is not None:
            target_span = target_span._replace(start=at_target)
        else:
            return Mismatch(int(theirs["offset"][0]))
    return await match_from_start(origin, origin_span, target, target_span)


async def match_from_start(
    origin: KafkaCluster, origin_span: Span, target: KafkaCluster, target_span: Span
) -> Match | Mismatch:
    """Compare all records of the target's span with the first ones of the origin's."""
    async with (
        aclosing(digests(origin, {origin_span.partition: origin_span})) as ours,
        aclosing(digests(target, {target_span.partition: target_span})) as theirs,
    ):
        here, there = _RowStream(ours), _RowStream(theirs)
        offsets = OffsetMap()
        position, end = origin_span.start, 0
        while await there.fill():
            if not await here.fill():
                return Mismatch(int(there.rows["offset"][0]))
            size = min(len(here.rows), len(there.rows))
            left, right = here.take(size), there.take(size)
            different = np.flatnonzero(left["digest"] != right["digest"])
            if len(different):
                return Mismatch(int(right["offset"][different[0]]))
            offsets.add(int(left["offset"][0]), int(right["offset"][0]), 0)
            position, end = int(left["offset"][-1]) + 1, int(right["offset"][-1]) + 1
        return Match(position, end, offsets)


async def _first(cluster: KafkaCluster, span: Span) -> RecordDigests:
    """Return the digests of the first records of a span."""
    found = np.empty(0, DIGESTS)
    async with aclosing(digests(cluster, {span.partition: span})) as parts:
        async for _, rows in parts:
            found = np.concatenate([found, rows])
            if len(found) >= _NEEDLE_RECORDS:
                break
    return found[:_NEEDLE_RECORDS]


async def _find(cluster: KafkaCluster, span: Span, needle: NDArray[np.int64]) -> int | None:
    """Return the first offset from which on the records have these digests; as many of them as the span has."""
    rest = np.empty(0, DIGESTS)
    async with aclosing(digests(cluster, {span.partition: span})) as parts:
        async for _, rows in parts:
            rest = np.concatenate([rest, rows])
            for index in np.flatnonzero(rest["digest"][: len(rest) - len(needle) + 1] == needle[0]):
                if (rest["digest"][index : index + len(needle)] == needle).all():
                    return int(rest["offset"][index])
            rest = rest[max(0, len(rest) - len(needle) + 1) :]
    # The span may end within the needle.
    for index in np.flatnonzero(rest["digest"] == needle[0]):
        if (rest["digest"][index:] == needle[: len(rest) - index]).all():
            return int(rest["offset"][index])
    return None


class _RowStream:
    """Digests of one side that were read and not taken."""

    def __init__(self, parts: AsyncIterator[tuple[SpanPart, RecordDigests]]) -> None:
        self._parts = parts
        self.rows: RecordDigests = np.empty(0, DIGESTS)

    async def fill(self) -> bool:
        """Have rows, if there are more. Return whether there are."""
        while not len(self.rows):
            part = await anext(self._parts, None)
            if part is None:
                return False
            self.rows = part[1]
        return True

    def take(self, count: int) -> RecordDigests:
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken
