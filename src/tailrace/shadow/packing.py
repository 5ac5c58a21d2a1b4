"""Makes the batches that a target is sent out of those that were fetched, and says where each record goes.

A batch goes as it is wherever that is possible: with another producer in its head and a new checksum, its records untouched
and still compressed. It is made anew if compaction has left gaps in it, if its records have the time of their append, if only
a part of it is wanted, or if it is larger than the target takes. Small batches are joined, because a request has room for only
one batch of a partition.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from tailrace.model.commit import Buffer
from tailrace.model.limits import DEFAULT_LIMITS, KIB, MIB
from tailrace.shadow.fetched import FetchedBatch
from tailrace.wire.batch import HEADER_BYTES, TIMESTAMP_TYPE_MASK
from tailrace.wire.compression import Compression
from tailrace.wire.rebatching import RecordJoiner, RecordSpan, joined_batch
from tailrace.wire.records import decompressed_records

_SMALL_BYTES = 16 * KIB
_SMALL_COMPRESSED_BYTES = 4 * KIB
"""To compress records again takes longer than a request of their own."""
_JOINED_BYTES = 512 * KIB
"""Small batches are joined up to this size, as they are when they are not compressed."""
_LZ4_FLAGS_AT = HEADER_BYTES + 4
_LZ4_INDEPENDENT = 0x20
_LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, decompressed_batch_bytes=256 * MIB, batch_records=1 << 31)
"""Batches come from a cluster that may take larger ones than we do."""


class Run(NamedTuple):
    """Records of the origin in a packed batch."""

    origin: int
    """The offset from which on they are."""
    place: int
    """The number of the first of them in the batch."""
    records: int
    is_dense: bool
    """Whether each of their offsets has a record, the first too."""


class PackedBatch(NamedTuple):
    data: Buffer
    records: int
    runs: Sequence[Run]
    size: int
    """Bytes that its records took at the origin."""


class RecordTooLargeError(Exception):
    """A record is larger than a batch of the target may be."""

    def __init__(self, offset: int, size: int, most_bytes: int) -> None:
        super().__init__(f"the record at offset {offset} takes {size} bytes, and the target takes {most_bytes}")


def pack(batches: Sequence[FetchedBatch], position: int, most_bytes: int, join: RecordJoiner) -> Iterator[PackedBatch]:
    """Yield batches of at most `most_bytes` with the records from `position` on. Those of `batches` may be changed."""
    waiting: list[RecordSpan] = []
    size = taken = 0
    for number, batch in enumerate(batches):
        header, data = batch
        is_alone = not waiting and not (number + 1 < len(batches) and _is_small(batches[number + 1]))
        goes_whole = is_whole(batch, position) and len(data) <= most_bytes
        if goes_whole and (is_alone or not _is_small(batch)):
            yield from _join(waiting, taken, most_bytes, join)
            waiting, size, taken = [], 0, 0
            run = Run(header.base_offset, 0, header.records, is_dense=True)
            yield PackedBatch(data, header.records, [run], len(data))
            continue
        span = RecordSpan(header, decompressed_records(data, header, _LIMITS), position, header.end_offset)
        if waiting and (size + len(span.data) > min(_JOINED_BYTES, most_bytes) or waiting[0].header.codec != header.codec):
            yield from _join(waiting, taken, most_bytes, join)
            waiting, size, taken = [], 0, 0
        waiting.append(span)
        size += len(span.data)
        taken += len(data)
    yield from _join(waiting, taken, most_bytes, join)


def is_whole(batch: FetchedBatch, position: int) -> bool:
    """Return whether a batch can go as it is, if it is not too large."""
    header = batch.header
    if header.is_sparse or header.base_offset < position or header.attributes & TIMESTAMP_TYPE_MASK:
        return False
    # Kafka's brokers read only LZ4 frames whose blocks do not refer to each other.
    return header.codec != Compression.LZ4 or bool(batch.data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT)


def _is_small(batch: FetchedBatch) -> bool:
    return len(batch.data) < (_SMALL_COMPRESSED_BYTES if batch.header.codec else _SMALL_BYTES)


def _join(spans: Sequence[RecordSpan], taken: int, most_bytes: int, join: RecordJoiner) -> Iterator[PackedBatch]:
    """Yield one batch of all spans, or several if it would be too large."""
    if not spans:
        return
    data, counts = joined_batch(spans, join, spans[0].header.codec)
    if len(data) <= most_bytes:
        if sum(counts):
            yield PackedBatch(data, sum(counts), list(_runs(spans, counts)), taken)
        return
    if len(spans) > 1:
        half = len(spans) // 2
        for part in (spans[:half], spans[half:]):
            yield from _join(part, taken // 2, most_bytes, join)
        return
    (span,) = spans
    first = max(span.first, span.header.base_offset)
    if sum(counts) == 1:
        raise RecordTooLargeError(first, len(data), most_bytes)
    middle = (first + span.stop) // 2
    for half_span in (span._replace(first=first, stop=middle), span._replace(first=middle)):
        yield from _join([half_span], taken // 2, most_bytes, join)


def _runs(spans: Sequence[RecordSpan], counts: Sequence[int]) -> Iterator[Run]:
    index = 0
    for span, count in zip(spans, counts, strict=True):
        first = max(span.first, span.header.base_offset)
        if count:
            yield Run(first, index, count, is_dense=count == span.stop - first)
        index += count
