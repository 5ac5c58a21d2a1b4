"""Joins the records of stored batches to the records of one new batch, as a producer would send it.

A cluster that stores a batch may have removed records from it, or have given all of them the time of their append; another
cluster takes only batches whose offsets count from 0 without a gap, with a time for each record. So records get new offsets and
times relative to the new batch. Their keys, values and headers are not looked at.

`PlainJoiner` does so in Python; `wire/fast_rebatching.py` has the same as machine code.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader, assemble_batch
from tailrace.wire.compression import compress
from tailrace.wire.records import GREATEST_TIMESTAMP, LEAST_TIMESTAMP, cut_off, next_record
from tailrace.wire.varints import decode_varint, encode_varint

_NO_ATTRIBUTES = b"\0"


class RecordSpan(NamedTuple):
    """Records of a batch whose offsets are `first` or more, and less than `stop`."""

    header: BatchHeader
    data: Buffer
    """All records of the batch, decompressed."""
    first: int
    stop: int

    @property
    def append_time(self) -> int | None:
        """The timestamp of all records, if the cluster has set it."""
        return self.header.max_timestamp if self.header.attributes & TIMESTAMP_TYPE_MASK else None

    @property
    def base_timestamp(self) -> int:
        return self.header.max_timestamp if self.append_time is not None else self.header.base_timestamp


class JoinedRecords(NamedTuple):
    body: Buffer
    counts: Sequence[int]
    """How many records come from each span."""
    base_timestamp: int
    max_timestamp: int


class RecordJoiner(Protocol):
    def __call__(self, spans: Sequence[RecordSpan]) -> JoinedRecords:
        """Join the records of spans, of which there is at least one."""
        ...


def joined_batch(spans: Sequence[RecordSpan], join: RecordJoiner, codec: int) -> tuple[bytearray, Sequence[int]]:
    """Return one batch with the records of all spans, and how many come from each. There must be at least one record."""
    joined = join(spans)
    body = compress(codec, joined.body)
    batch = assemble_batch(body, sum(joined.counts), joined.base_timestamp, joined.max_timestamp, attributes=codec)
    return batch, joined.counts


class PlainJoiner:
    def __call__(self, spans: Sequence[RecordSpan]) -> JoinedRecords:
        base = spans[0].base_timestamp
        newest = LEAST_TIMESTAMP
        parts: list[bytes] = []
        counts = []
        number = 0
        for span in spans:
            before = number
            for timestamp, rest in _records(span):
                later = encode_varint(timestamp - base)
                delta = encode_varint(number)
                parts.append(encode_varint(1 + len(later) + len(delta) + len(rest)))
                parts += (_NO_ATTRIBUTES, later, delta, rest)
                newest = max(newest, timestamp)
                number += 1
            counts.append(number - before)
        return JoinedRecords(b"".join(parts), counts, base, newest)


def _records(span: RecordSpan) -> "Sequence[tuple[int, bytes]]":
    """Return the timestamp of each record, and its bytes behind the offset."""
    header = span.header
    plain = bytes(span.data)
    found = []
    at = 0
    try:
        for index in range(header.records):
            length, at = decode_varint(plain, at)
            end = next_record(plain, at, length, index)
            later, at = decode_varint(plain, at + 1)
            delta, at = decode_varint(plain, at)
            timestamp = header.base_timestamp + later if span.append_time is None else span.append_time
            if at > end or not 0 <= delta <= header.last_offset_delta or not LEAST_TIMESTAMP <= timestamp <= GREATEST_TIMESTAMP:
                raise malformed(span)
            if span.first <= header.base_offset + delta < span.stop:
                found.append((timestamp, plain[at:end]))
            at = end
    except IndexError:
        raise cut_off() from None
    return found


def malformed(span: RecordSpan) -> CorruptBatchError:
    return CorruptBatchError(f"the records of the batch at offset {span.header.base_offset} can't be read")
