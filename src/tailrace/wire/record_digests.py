"""Digests of records, by which the contents of two partitions are compared without their offsets.

A digest is a hash of 64 bits of what a record says: its timestamp, key, value and headers. It has a secret that is new for each
process, so digests of different processes do not compare. `PlainDigester` works in Python; `wire/fast_record_digests.py` has
the same as machine code, with another hash.
"""

import hashlib
import os
from struct import Struct
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader
from tailrace.wire.records import cut_off, next_record
from tailrace.wire.varints import decode_varint

DIGESTS = np.dtype([("offset", "<i8"), ("digest", "<i8"), ("key", "<i8"), ("kind", "<i8")])
"""One record: its offset, its digest, the digest of its key (0 without one), and the sum of what it has."""
HAS_KEY, HAS_VALUE = 1, 2

_TIMESTAMP = Struct("<q")

RecordDigests = NDArray[np.void]


class Digester(Protocol):
    def __call__(self, header: BatchHeader, data: Buffer) -> RecordDigests:
        """Return a row of `DIGESTS` for each record of a batch. `data` is the decompressed records."""
        ...


class PlainDigester:
    def __init__(self) -> None:
        self._secret = os.urandom(32)

    def __call__(self, header: BatchHeader, data: Buffer) -> RecordDigests:
        plain = bytes(data)
        append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
        found = np.zeros(header.records, DIGESTS)
        at = 0
        try:
            for index in range(header.records):
                length, at = decode_varint(plain, at)
                end = next_record(plain, at, length, index)
                later, at = decode_varint(plain, at + 1)
                delta, at = decode_varint(plain, at)
                begin = at
                size, at = decode_varint(plain, at)
                key = plain[at : at + size] if size >= 0 else None
                value_size, at = decode_varint(plain, at + max(0, size))
                if at > end or not 0 <= delta <= header.last_offset_delta:
                    raise malformed(header)
                timestamp = header.base_timestamp + later if append_time is None else append_time
                found[index] = (
                    header.base_offset + delta,
                    self._digest(_TIMESTAMP.pack(timestamp), plain[begin:end]),
                    0 if key is None else self._digest(b"", key),
                    (0 if key is None else HAS_KEY) | (0 if value_size < 0 else HAS_VALUE),
                )
                at = end
        except IndexError:
            raise cut_off() from None
        return found

    def _digest(self, head: bytes, data: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(head + data, digest_size=8, key=self._secret).digest(), "little", signed=True)


def malformed(header: BatchHeader) -> CorruptBatchError:
    return CorruptBatchError(f"the records of the batch at offset {header.base_offset} can't be read")
