"""Reads what partitions hold, to compare it or to count it: digests of records in order, from one offset to another."""

import logging
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np

from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.record import Record
from tailrace.shadow.admin import Partition
from tailrace.shadow.cluster import KafkaCluster, TopicPlace
from tailrace.shadow.failures import ShadowError
from tailrace.shadow.fetched import FetchedBatch
from tailrace.shadow.reader import ClusterReader, FetchedPart, OffsetsGone, TopicGone
from tailrace.wire.fast_record_digests import compile_digester, load_digester
from tailrace.wire.record_digests import DIGESTS, Digester, PlainDigester, RecordDigests
from tailrace.wire.records import decode_batch, decompressed_records

_log = logging.getLogger("tailrace.shadow")

_LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, decompressed_batch_bytes=256 * MIB, batch_records=1 << 31)
_QUEUED_BYTES = 8 * MIB
_SILENT_SECONDS = 60.0
_numbers = count()


class Span(NamedTuple):
    """A part of a partition: from one offset to another."""

    place: TopicPlace
    number: int
    start: int
    stop: int

    @property
    def partition(self) -> Partition:
        return self.place.name, self.number


class SpanPart(NamedTuple):
    """Batches of a span, in order. Their records before `start`, and from `stop` on, do not belong to it."""

    partition: Partition
    batches: Sequence[FetchedBatch]
    start: int
    stop: int
    position: int
    """How far the span was read."""
    size: int


@cache
def digester() -> Digester:
    """Return how records are digested: by machine code if it can be had."""
    found = load_digester()
    if found is None:
        try:
            found = compile_digester()
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("records are compared without compiled code, which is many times slower: %s", error)
            return PlainDigester()
    return found


async def read_spans(cluster: KafkaCluster, spans: Mapping[Partition, Span]) -> AsyncGenerator[SpanPart]:
    """Yield the committed batches of spans, all partitions at once. Raises `ShadowError` if offsets are gone."""
    left = {partition: span for partition, span in spans.items() if span.start < span.stop}
    # Connections of its own, because a broker answers the requests of one connection one after another.
    purpose = f"contents {next(_numbers)}"
    reader = ClusterReader(cluster, queued_bytes=_QUEUED_BYTES, purpose=purpose)
    try:
        for span in left.values():
            reader.add(span.place, span.number, span.start)
        while left:
            event = await reader.take(_SILENT_SECONDS)
            if event is None:
                partition = next(iter(left))
                raise ShadowError(
                    f"partition {partition[1]} of topic {partition[0]!r} could not be read to offset {left[partition].stop} of"
                    f" {cluster.what} within {_SILENT_SECONDS:g} s; a transaction may be open there",
                    "Try again when the transaction has ended",
                )
            if not isinstance(event, FetchedPart):
                raise ShadowError(f"{_named(event)} is not in {cluster.what} any more", "Try again")
            span = left[event.partition]
            batches = [batch for batch in event.batches if batch.header.base_offset < span.stop]
            position = min(event.position, span.stop)
            yield SpanPart(event.partition, batches, event.start, span.stop, position, event.size)
            if position >= span.stop:
                del left[event.partition]
                reader.remove([event.partition])
    finally:
        await reader.close()
        await cluster.release(purpose)


async def digests(cluster: KafkaCluster, spans: Mapping[Partition, Span]) -> AsyncGenerator[tuple[SpanPart, RecordDigests]]:
    """Yield digests of the records of spans, a part of a partition at a time."""
    digest = digester()
    async with aclosing(read_spans(cluster, spans)) as parts:
        async for part in parts:
            found = [digest(header, decompressed_records(data, header, _LIMITS)) for header, data in part.batches]
            rows = np.concatenate(found) if found else np.empty(0, DIGESTS)
            yield part, rows[(rows["offset"] >= part.start) & (rows["offset"] < part.stop)]


async def records(cluster: KafkaCluster, span: Span, most: int) -> list[Record]:
    """Return the first records of a span, decoded."""
    found: list[Record] = []
    async with aclosing(read_spans(cluster, {span.partition: span})) as parts:
        async for part in parts:
            for header, data in part.batches:
                first = max(0, part.start - header.base_offset)
                found += decode_batch(data, _LIMITS, first=first, stop=part.stop - header.base_offset, most=most - len(found))
                if len(found) >= most:
                    return found
    return found


async def has_records(cluster: KafkaCluster, span: Span) -> bool:
    """Return whether a span has committed records."""
    async with aclosing(read_spans(cluster, {span.partition: span})) as parts:
        async for part in parts:
            if any(batch.header.end_offset > span.start for batch in part.batches):
                return True
    return False


async def count_records(cluster: KafkaCluster, span: Span) -> int:
    """Return how many committed records a span has."""
    found = 0
    async with aclosing(digests(cluster, {span.partition: span})) as parts:
        async for _, rows in parts:
            found += len(rows)
    return found


async def offset_of_record(cluster: KafkaCluster, span: Span, number: int) -> int | None:
    """Return the offset of a record by how many of the span come before it, or `None` if it has no more than that."""
    async with aclosing(digests(cluster, {span.partition: span})) as parts:
        async for _, rows in parts:
            if number < len(rows):
                return int(rows["offset"][number])
            number -= len(rows)
    return None


def _named(event: OffsetsGone | TopicGone) -> str:
    if isinstance(event, TopicGone):
        return f"topic {event.topic!r}"
    return f"offset {event.position} of partition {event.partition[1]} of topic {event.partition[0]!r}"
