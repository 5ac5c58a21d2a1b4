"""Cuts fetched bytes into batches, and leaves out what no reader is shown: aborted transactions and markers."""

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, UnsupportedBatchError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, LENGTH_FROM, MAGIC, BatchHeader, batch_length, read_header
from tailrace.wire.messages.fetch import FetchAbortedTransaction
from tailrace.wire.records import decode_batch

_MAGIC_AT = 16
_ABORT = b"\0\0"
_TYPE = slice(2, 4)


class FetchedBatch(NamedTuple):
    header: BatchHeader
    data: memoryview
    """The whole batch, which may be written to."""


class ReadableBatches(NamedTuple):
    batches: Sequence[FetchedBatch]
    position: int
    """Behind the last offset that was looked at."""
    size: int
    """Bytes of the batches."""


def committed_batches(
    records: Buffer | None, position: int, aborted: Sequence[FetchAbortedTransaction] | None
) -> ReadableBatches:
    """Return the complete batches with committed records from `position` on. Their checksums are right.

    The first batch may begin before the position; its first records are for the caller to leave out.
    """
    view = memoryview(records or b"")
    begun = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    is_aborted: set[int] = set()
    found: list[FetchedBatch] = []
    size = at = 0
    while len(view) - at >= HEADER_BYTES:
        length = batch_length(view[at : at + HEADER_BYTES]) + LENGTH_FROM
        if length > len(view) - at:
            break
        if view[at + _MAGIC_AT] != MAGIC:
            raise UnsupportedBatchError(
                f"the batch at offset {position} has format {view[at + _MAGIC_AT]}, from before Kafka 0.11; only format {MAGIC}"
                " can be copied"
            )
        if length < HEADER_BYTES:
            raise CorruptBatchError(f"a batch of {length} bytes was fetched at offset {position}")
        data = view[at : at + length]
        at += length
        header = read_header(data)
        if crc32c(data[CHECKED_FROM:]) != header.crc:
            raise CorruptBatchError(f"the checksum of the batch at offset {header.base_offset} does not match its bytes")
        while begun and begun[-1].first_offset < header.end_offset:
            is_aborted.add(begun.pop().producer_id)
        if header.end_offset <= position:
            continue
        position = header.end_offset
        if header.is_control:
            if header.producer_id in is_aborted and _is_abort(data):
                is_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in is_aborted) and header.records > 0:
            found.append(FetchedBatch(header, data))
            size += length
    return ReadableBatches(found, position, size)


def _is_abort(data: Buffer) -> bool:
    key = decode_batch(data, DEFAULT_LIMITS)[0].key or b""
    return key[_TYPE] == _ABORT
