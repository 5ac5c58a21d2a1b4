"""Splits a batch by the keys of its records, for readers that each want one part of them.

A part is a batch as the compaction of a log leaves it: its records keep their bytes and so the differences of their offsets
from the first of the whole batch, and its head still counts all offsets. It is not compressed.
"""

from collections.abc import Sequence
from struct import Struct

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import Limits
from tailrace.wire.batch import HEADER_BYTES, TIMESTAMP_TYPE_MASK, read_header, with_records
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import cut_off, next_record, record_bytes
from tailrace.wire.varints import decode_varint

_OFFSET = Struct(">q")
_RECORDS = Struct(">i")
_RECORDS_AT = HEADER_BYTES - _RECORDS.size
_KNOWN_KEYS = 10_000

Slices = list[tuple[int, bytes]]
"""Encoded records, each with how far its offset is above the base offset of the batch."""


def split_records(batch: Buffer, limits: Limits, partitions: int, keyless: int) -> Sequence[Slices]:
    """Return the records of each partition, by the hash of their keys. Those without a key belong to partition `keyless`."""
    header = read_header(batch)
    data = record_bytes(batch, header, limits)
    parts: list[Slices] = [[] for _ in range(partitions)]
    known: dict[bytes, int] = {}
    at = 0
    try:
        for index in range(header.records):
            begin = at
            length, at = decode_varint(data, at)
            end = next_record(data, at, length, index)
            _, at = decode_varint(data, at + 1)
            delta, at = decode_varint(data, at)
            key_length, at = decode_varint(data, at)
            number = keyless
            if key_length >= 0:
                if at + key_length > end:
                    raise CorruptBatchError(f"record {index} of the batch has a key of {key_length} bytes in {length}")
                key = data[at : at + key_length]
                found = known.get(key)
                if found is None:
                    if len(known) >= _KNOWN_KEYS:
                        known.clear()
                    found = known[key] = partition_for_key(key, partitions)
                number = found
            parts[number].append((delta, data[begin:end]))
            at = end
    except IndexError:
        raise cut_off() from None
    return parts


def assemble_part(batch: Buffer, records: Sequence[tuple[int, bytes]], base_offset: int) -> bytes:
    """Return a batch with the head of this one, these of its records, and another base offset."""
    head = bytearray(memoryview(batch)[:HEADER_BYTES])
    attributes = read_header(batch).attributes & TIMESTAMP_TYPE_MASK
    _OFFSET.pack_into(head, 0, base_offset)
    _RECORDS.pack_into(head, _RECORDS_AT, len(records))
    return with_records(head, [record for _, record in records], attributes)
