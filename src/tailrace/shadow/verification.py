"""Compares what both clusters hold of the topics of a shadow: counts and checksums by partition and range of records.

Each side is read by itself, and its records are reduced to a checksum for each range of `RANGE_RECORDS`, which depends on
their order. So memory does not grow with the topics. Where two ranges differ they are read again, and the first record that
differs is named. The start is where both sides have records from on, the end is how far the copy has come.

In compacted topics either side may have removed records that have a later one with the same key. There the last record of each
key is compared, without tombstones.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from itertools import zip_longest
from typing import NamedTuple

import msgspec
import numpy as np

from tailrace.model.record import Record
from tailrace.shadow.admin import EARLIEST, LATEST, ClusterAdmin, Partition
from tailrace.shadow.cluster import KafkaCluster
from tailrace.shadow.contents import Span, digests, records
from tailrace.shadow.key_comparison import compare_keys
from tailrace.shadow.resumption import PartitionCopy
from tailrace.wire.record_digests import DIGESTS, RecordDigests

RANGE_RECORDS = 65_536
_PARTITIONS_AT_ONCE = 16
_SHOWN_BYTES = 60


class Difference(msgspec.Struct, frozen=True):
    """The first record in which two partitions differ."""

    origin_offset: int | None
    """`None` if the origin has no more records there."""
    target_offset: int | None
    what: str


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    first_offset: int
    """The offset of the origin from which on records were compared."""
    end_offset: int
    records: int
    """Of the origin; of a compacted topic the keys that were compared."""
    target_records: int
    ranges: int
    by_key: bool
    difference: Difference | None

    @property
    def is_equal(self) -> bool:
        return self.difference is None


class _Range(NamedTuple):
    checksum: bytes
    first: int
    """The offset of its first record."""
    records: int


class _Ranges:
    """The ranges of one partition of one side, as they are read."""

    def __init__(self) -> None:
        self.ranges: list[_Range] = []
        self.records = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._first = 0
        self._count = 0

    def add(self, rows: RecordDigests) -> None:
        at = 0
        while at < len(rows):
            part = rows[at : at + RANGE_RECORDS - self._count]
            if not self._count:
                self._first = int(part["offset"][0])
            self._hash.update(part["digest"].tobytes())
            self._count += len(part)
            at += len(part)
            if self._count == RANGE_RECORDS:
                self.finish()
        self.records += len(rows)

    def finish(self) -> None:
        if self._count:
            self.ranges.append(_Range(self._hash.digest(), self._first, self._count))
        self._hash = hashlib.blake2b(digest_size=16)
        self._count = 0


class Verification:
    """Compares partitions, a few at a time."""

    def __init__(self, origin: KafkaCluster, target: KafkaCluster, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """`on_progress` is called with the offsets of the origin that were compared since the last call."""
        self._origin = origin
        self._target = target
        self._on_progress = on_progress

    async def verify(
        self, copies: Mapping[Partition, PartitionCopy], tail_from: Mapping[Partition, int] | None = None
    ) -> AsyncIterator[PartitionResult]:
        """Yield the result of each partition. `tail_from` has offsets of the origin before which nothing is compared."""
        topics = {copy.topic.name: copy.topic for copy in copies.values()}.values()
        origin_starts = await ClusterAdmin(self._origin).offsets([topic.origin for topic in topics], EARLIEST)
        target_starts = await ClusterAdmin(self._target).offsets([topic.target for topic in topics], EARLIEST)
        compared = {}
        for partition, copy in copies.items():
            least = max(origin_starts[partition], (tail_from or {}).get(partition, 0))
            compared[partition] = _Compared(copy, *_first_pair(copy, least, target_starts[partition]))
        in_order = sorted(partition for partition, copy in copies.items() if not copy.topic.is_compacted)
        for at in range(0, len(in_order), _PARTITIONS_AT_ONCE):
            chosen = {each: compared[each] for each in in_order[at : at + _PARTITIONS_AT_ONCE]}
            ours, theirs = await asyncio.gather(
                self._read(self._origin, {each: one.origin_span for each, one in chosen.items()}, self._on_progress),
                self._read(self._target, {each: one.target_span for each, one in chosen.items()}, _ignore),
            )
            for partition, one in chosen.items():
                yield await self._compare(one, ours[partition], theirs[partition])
        for partition in sorted(copies.keys() - set(in_order)):
            yield await self._compare_keys(compared[partition])

    async def _read(
        self, cluster: KafkaCluster, spans: Mapping[Partition, Span], on_progress: Callable[[int], None]
    ) -> dict[Partition, "_Ranges"]:
        found = {partition: _Ranges() for partition in spans}
        positions = {partition: span.start for partition, span in spans.items()}
        async with aclosing(digests(cluster, spans)) as parts:
            async for part, rows in parts:
                found[part.partition].add(rows)
                on_progress(part.position - positions[part.partition])
                positions[part.partition] = part.position
        for ranges in found.values():
            ranges.finish()
        return found

    async def _compare(self, one: "_Compared", ours: "_Ranges", theirs: "_Ranges") -> PartitionResult:
        difference = None
        for left, right in zip_longest(ours.ranges, theirs.ranges):
            if left is None or right is None or left.checksum != right.checksum:
                difference = await self._find(one, left, right)
                if difference is not None:
                    break
        return one.result(ours.records, theirs.records, max(len(ours.ranges), len(theirs.ranges)), difference)

    async def _find(self, one: "_Compared", left: "_Range | None", right: "_Range | None") -> Difference | None:
        """Return the first record in which two ranges differ. Records may be equal though their bytes are not."""
        ours = await self._rows(self._origin, one.origin_span, left)
        theirs = await self._rows(self._target, one.target_span, right)
        common = min(len(ours), len(theirs))
        for index in np.flatnonzero(ours["digest"][:common] != theirs["digest"][:common]):
            here, there = int(ours["offset"][index]), int(theirs["offset"][index])
            record = await self._record(self._origin, one.origin_span, here)
            other = await self._record(self._target, one.target_span, there)
            what = describe_difference(record, other)
            if what is not None:
                return Difference(here, there, what)
        if len(ours) > common:
            return Difference(int(ours["offset"][common]), None, "the record is not in the target")
        if len(theirs) > common:
            return Difference(None, int(theirs["offset"][common]), "the target has a record that the origin does not have")
        return None

    async def _rows(self, cluster: KafkaCluster, span: Span, wanted: "_Range | None") -> RecordDigests:
        found = np.empty(0, DIGESTS)
        if wanted is None:
            return found
        async with aclosing(digests(cluster, {span.partition: span._replace(start=wanted.first)})) as parts:
            async for _, rows in parts:
                found = np.concatenate([found, rows])
                if len(found) >= wanted.records:
                    break
        return found[: wanted.records]

    async def _record(self, cluster: KafkaCluster, span: Span, offset: int) -> Record:
        (record,) = await records(cluster, span._replace(start=offset, stop=offset + 1), 1)
        return record

    async def _compare_keys(self, one: "_Compared") -> PartitionResult:
        partition = one.copy.topic.name, one.copy.number
        ends = [
            (await ClusterAdmin(cluster).offsets([place], LATEST, committed=True))[partition]
            for cluster, place in ((self._origin, one.copy.topic.origin), (self._target, one.copy.topic.target))
        ]
        found = await compare_keys(
            self._origin, one.origin_span, ends[0], self._target, one.target_span, ends[1], self._on_progress
        )
        difference = None
        if found.difference is not None:
            here, there = found.difference
            what = await self._describe_key(one, here, there)
            difference = None if what is None else Difference(here, there, what)
        return one.result(found.keys, found.target_keys, 1, difference, by_key=True)

    async def _describe_key(self, one: "_Compared", here: int | None, there: int | None) -> str | None:
        if here is None:
            return "the origin has no record with this key"
        record = await self._record(self._origin, one.origin_span, here)
        if there is None:
            return f"the target has no record with the key {_shown(record.key)}"
        return describe_difference(record, await self._record(self._target, one.target_span, there))


class _Compared(NamedTuple):
    """What is compared of a partition, and from where on."""

    copy: PartitionCopy
    origin_start: int
    target_start: int

    @property
    def origin_span(self) -> Span:
        return Span(self.copy.topic.origin, self.copy.number, self.origin_start, self.copy.position)

    @property
    def target_span(self) -> Span:
        return Span(self.copy.topic.target, self.copy.number, self.target_start, self.copy.target_end)

    def result(
        self, records: int, target_records: int, ranges: int, difference: Difference | None, *, by_key: bool = False
    ) -> PartitionResult:
        return PartitionResult(
            topic=self.copy.topic.name,
            partition=self.copy.number,
            first_offset=self.origin_start,
            end_offset=self.copy.position,
            records=records,
            target_records=target_records,
            ranges=ranges,
            by_key=by_key,
            difference=difference,
        )


def _first_pair(copy: PartitionCopy, least_origin: int, least_target: int) -> tuple[int, int]:
    """Return the first known pair of offsets that are not before these."""
    for anchor in copy.offsets:
        if anchor.origin + anchor.records >= least_origin and anchor.target + anchor.records >= least_target:
            skipped = max(0, least_origin - anchor.origin, least_target - anchor.target)
            return anchor.origin + skipped, anchor.target + skipped
    return copy.position, copy.target_end


def describe_difference(record: Record, other: Record) -> str | None:
    """Return in what two records differ, or `None` if they are the same."""
    for name, ours, theirs in (
        ("key", record.key, other.key),
        ("value", record.value, other.value),
        ("headers", list(record.headers), list(other.headers)),
        ("timestamp", record.timestamp, other.timestamp),
    ):
        if ours != theirs:
            return f"the {name} is {_shown(ours)} at the origin and {_shown(theirs)} in the target"
    return None


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}... ({len(text)} characters)"


def _ignore(_: int) -> None:
    pass
