"""Compacts batches: finds the last record of each key, and makes batches without the records that have a later one.

`LatestOffsets` remembers the last offset of each key by a hash of 128 bits, with a secret that is new for each of them, so that
nobody can choose two keys with the same hash. Its size is bounded. `PlainLatestOffsets` is a dict; `wire/fast_compaction.py`
has the same as machine code.

A record that is kept keeps its bytes. So its offset and its timestamp stay relative to the head of the batch, which keeps its
base offset, its base timestamp and its last offset.
"""

import hashlib
import os
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Protocol

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.ids import PartitionId
from tailrace.wire.batch import HEADER_BYTES, TIMESTAMP_TYPE_MASK, BatchHeader, with_fewer_records
from tailrace.wire.compression import Compression, compress, compress_hard
from tailrace.wire.records import cut_off, next_record
from tailrace.wire.varints import decode_varint

KEY_BYTES = 24
"""Memory of one key in the compiled table: 16 bytes of hash and 8 of offset."""
_PLAIN_KEY_BYTES = 200
_PARTITION = Struct(">II")
_NONE = -1


class KeptRecords(NamedTuple):
    """The records of a batch that are kept."""

    records: int
    spans: Sequence[tuple[int, int]]
    """Where they begin and end in the decompressed bytes. Neighbours are joined."""
    newest: int
    """The newest timestamp of them, relative to the base timestamp."""


class LatestOffsets(Protocol):
    """The last offset of each key that was noted."""

    def note(self, partition: PartitionId, header: BatchHeader, data: Buffer, stop: int) -> bool:
        """Note the keys of the records below the offset `stop`. Return false if there is no room for all of them."""
        ...

    def kept(self, partition: PartitionId, header: BatchHeader, data: Buffer, expired_end: int) -> KeptRecords:
        """Return the records with a key that was not noted for a later offset, without tombstones below `expired_end`."""
        ...


class PlainLatestOffsets:
    def __init__(self, most_bytes: int) -> None:
        self._secret = os.urandom(32)
        self._most = max(1, most_bytes // _PLAIN_KEY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def note(self, partition: PartitionId, header: BatchHeader, data: Buffer, stop: int) -> bool:
        plain = bytes(data)
        for _, _, delta, _, key, _ in _records(plain, header):
            offset = header.base_offset + delta
            if key is None or offset >= stop:
                continue
            digest = self._digest(partition, key)
            if digest not in self._offsets and len(self._offsets) >= self._most:
                return False
            self._offsets[digest] = max(offset, self._offsets.get(digest, 0))
        return True

    def kept(self, partition: PartitionId, header: BatchHeader, data: Buffer, expired_end: int) -> KeptRecords:
        plain = bytes(data)
        spans: list[tuple[int, int]] = []
        count = 0
        newest = -(1 << 63)
        for begin, end, delta, later, key, is_tombstone in _records(plain, header):
            offset = header.base_offset + delta
            if key is None or self._offsets.get(self._digest(partition, key), _NONE) > offset:
                continue
            if is_tombstone and offset < expired_end:
                continue
            count += 1
            newest = max(newest, later)
            if spans and spans[-1][1] == begin:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((begin, end))
        return KeptRecords(count, spans, newest)

    def _digest(self, partition: PartitionId, key: bytes) -> bytes:
        return hashlib.blake2b(_PARTITION.pack(*partition) + key, digest_size=16, key=self._secret).digest()


def compacted_batch(batch: Buffer, header: BatchHeader, data: Buffer, kept: KeptRecords) -> bytes:
    """Return the batch with only these of its records, of which there are some. `data` is the decompressed records."""
    view = memoryview(data)
    body = b"".join([view[begin:end] for begin, end in kept.spans])
    max_timestamp = header.max_timestamp
    if not header.attributes & TIMESTAMP_TYPE_MASK:
        max_timestamp = header.base_timestamp + kept.newest
    return with_fewer_records(batch, _compressed(header, len(batch) - HEADER_BYTES, body), kept.records, max_timestamp)


def _compressed(header: BatchHeader, most_bytes: int, body: bytes) -> Buffer:
    """Compress with the codec of the batch; harder if the result would be larger than the batch was, with more records."""
    if header.codec == Compression.NONE:
        return body
    found = compress(header.codec, body)
    return found if len(found) <= most_bytes else compress_hard(header.codec, body)


def _records(data: bytes, header: BatchHeader) -> "Sequence[tuple[int, int, int, int, bytes | None, bool]]":
    """Return begin, end, offset delta, timestamp delta, key and whether the value is null, for all records."""
    found = []
    at = 0
    try:
        for index in range(header.records):
            begin = at
            length, at = decode_varint(data, at)
            end = next_record(data, at, length, index)
            later, at = decode_varint(data, at + 1)
            delta, at = decode_varint(data, at)
            size, at = decode_varint(data, at)
            key = data[at : at + size] if size >= 0 else None
            size, at = decode_varint(data, at + max(0, size))
            if at > end or not 0 <= delta <= header.last_offset_delta:
                raise CorruptBatchError(f"record {index} of the batch at offset {header.base_offset} can't be read")
            found.append((begin, end, delta, later, key, size < 0))
            at = end
    except IndexError:
        raise cut_off() from None
    return found
