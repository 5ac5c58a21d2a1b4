"""Checks RocksDB's MANIFEST before RocksDB reads it.

RocksDB reads for ever where a flipped bit turns the type of a record into one that only its write-ahead log has. The file has
the same form as that log: blocks of 32 KiB with records that don't cross their ends, each with a checksum, a length and a type.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from crc32c import crc32c

_BLOCK_BYTES = 32 * 1024
_HEADER = Struct("<IHB")
_CHECKED_FROM = 6
"""The checksum is that of the type and what follows."""
_MASK = 0xA282EAD8


def check_manifest(folder: Path) -> None:
    """Raise `ValueError` if a whole record of the MANIFEST in use has another checksum than its bytes.

    An end that is cut off is left to RocksDB, as is a folder without a MANIFEST.
    """
    try:
        path = folder / (folder / "CURRENT").read_text("ascii").rstrip("\n")
        for number, block in enumerate(_blocks(path)):
            at = _first_damaged(block)
            if at is not None:
                raise ValueError(f"Corruption: checksum mismatch in {path.name} at byte {number * _BLOCK_BYTES + at}")
    except (OSError, UnicodeDecodeError):
        return


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _first_damaged(block: bytes) -> int | None:
    at = 0
    while at + _HEADER.size <= len(block):
        checksum, length, kind = _HEADER.unpack_from(block, at)
        end = at + _HEADER.size + length
        if (kind == 0 and length == 0) or end > len(block):
            return None
        if _masked(crc32c(block[at + _CHECKED_FROM : end])) != checksum:
            return at
        at = end
    return None


def _masked(checksum: int) -> int:
    """Return a checksum as RocksDB stores it, so that a checksum of bytes with checksums in them is no special case."""
    rotated = checksum >> 15 | checksum << 17 & 0xFFFFFFFF
    return rotated + _MASK & 0xFFFFFFFF
