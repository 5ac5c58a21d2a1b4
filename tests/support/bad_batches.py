"""Batches whose checksum is right and whose inside is broken, as a folder of an earlier version may hold them, and how they get
into a store: past everything that checks what is produced.
"""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct

import cramjam
from crc32c import crc32c

from tailrace.broker import keys
from tailrace.model.commit import Append, Changes
from tailrace.model.ids import PartitionId
from tailrace.store.contract import Store
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.batch import CHECKED_FROM, LENGTH_FROM, MAGIC, read_header
from tests.support.batches import TIMESTAMP, encode_batch

_UNCHECKED_HEAD = Struct(">qiibI")
_CHECKED_HEAD = Struct(">hiqqqhii")
_GZIP, _SNAPPY, _LZ4, _ZSTD, _UNKNOWN = 1, 2, 3, 4, 7
_BOMB_BYTES = 17 << 20


def batch_of(body: bytes, records: int = 1, codec: int = 0) -> bytes:
    """A batch with a right checksum around these bytes, whatever they are."""
    checked = _CHECKED_HEAD.pack(codec, records - 1, TIMESTAMP, TIMESTAMP, -1, -1, -1, records) + body
    return _UNCHECKED_HEAD.pack(0, CHECKED_FROM - LENGTH_FROM + len(checked), -1, MAGIC, crc32c(checked)) + checked


def record_of(value: bytes, *, delta: int = 0, timestamp: bytes = b"\0", key: bytes = b"\1", headers: bytes = b"\0") -> bytes:
    """One record; a key is given with its length, a timestamp and headers as they are encoded."""
    content = b"\0" + timestamp + varint(delta) + key + varint(len(value)) + value + headers
    return varint(len(content)) + content


def large_batch(megabytes: int) -> bytes:
    """One record of so many MiB in a few KiB."""
    return batch_of(gzip.compress(record_of(b'"' + b"x" * ((megabytes << 20) - 2) + b'"')), codec=_GZIP)


def good_batch(*values: bytes) -> bytes:
    return encode_batch([(TIMESTAMP, value) for value in values])


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


BAD_BATCHES: Mapping[str, bytes] = {
    "gzip that is none": batch_of(b"this is no gzip at all", codec=_GZIP),
    "snappy that is none": batch_of(b"\xff" * 30, codec=_SNAPPY),
    "lz4 that is none": batch_of(b"this is no lz4 at all", codec=_LZ4),
    "zstd that is none": batch_of(b"this is no zstd at all", codec=_ZSTD),
    "gzip that is cut off": batch_of(gzip.compress(record_of(b"v" * 500))[:-12], codec=_GZIP),
    "bomb": batch_of(gzip.compress(record_of(b"x" * _BOMB_BYTES)), codec=_GZIP),
    "zstd bomb": batch_of(bytes(cramjam.zstd.compress(record_of(b"x" * _BOMB_BYTES))), codec=_ZSTD),
    "unknown codec": batch_of(record_of(b"v"), codec=_UNKNOWN),
    "length of eleven bytes": batch_of(b"\xff" * 11 + record_of(b"v")),
    "length of 64 bits": batch_of(b"\xfe" + b"\xff" * 8 + b"\x01" + record_of(b"v")),
    "negative length": batch_of(varint(-20) + record_of(b"v")),
    "length beyond the end": batch_of(varint(5_000) + record_of(b"v")),
    "huge key": batch_of(record_of(b"v", key=varint(1 << 31))),
    "negative key": batch_of(record_of(b"v", key=varint(-2))),
    "wrong offset": batch_of(record_of(b"v", delta=5)),
    "records of one claimed to be 100": batch_of(record_of(b"v"), records=100),
    "records of two claimed to be one": batch_of(record_of(b"v") + record_of(b"w", delta=1)),
    "last record cut off": batch_of(record_of(b"value")[:-3]),
    "bytes after the headers": batch_of(record_of(b"v", headers=b"\0\0\0")),
    "headers beyond the end": batch_of(record_of(b"v", headers=varint(1_000))),
    "header without a name": batch_of(record_of(b"v", headers=varint(1) + b"\1\1")),
    "no records": batch_of(b""),
}


def store_batches(store: Store, partition: PartitionId, batches: Sequence[bytes]) -> None:
    """Append them as they are, each in a commit of its own, as a version did that checked nothing."""
    for batch in batches:
        header = read_header(batch)
        store.commit(Changes(appends=[Append(partition, bytearray(batch), header.records, header.max_timestamp)]))
    store.commit(Changes(puts=[(keys.CHECKED_FROM, None)]))


def store_in_folder(folder: Path, batches: Sequence[bytes]) -> None:
    """Append them to the only partition of a folder that no server has open."""
    store = EmbeddedStore.open(folder)
    try:
        (partition,) = store.partitions()
        store_batches(store, partition, batches)
    finally:
        store.close()
