"""Bytes and UUIDs."""

import hashlib
import os
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from tailrace.sql.evaluation.functions import Entry, EvaluationError, Function, check_length, coded
from tailrace.sql.functions import byte_functions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)
"""From when on UUIDs of version 1 count."""
_ENCODINGS = frozenset(("utf8", "utf-8", "unicode"))


def _substring(value: bytes, start: int, length: int | None = None) -> bytes:
    if length is None:
        return value[max(start, 1) - 1 :]
    if length < 0:
        raise EvaluationError("22011", "negative substring length not allowed")
    return value[max(start, 1) - 1 : max(start + length, 1) - 1]


def _convert_from(value: bytes, encoding: str) -> str:
    if encoding.lower() not in _ENCODINGS:
        raise EvaluationError("0A000", f'the encoding "{encoding}" is not supported; use UTF8')
    return byte_functions.text_of_bytes(value)


def _convert_to(text: str, encoding: str) -> bytes:
    if encoding.lower() not in _ENCODINGS:
        raise EvaluationError("0A000", f'the encoding "{encoding}" is not supported; use UTF8')
    return text.encode()


def _joined(a: bytes, b: bytes) -> bytes:
    check_length(len(a) + len(b))
    return a + b


def _trimmer(side: str) -> Function:
    return lambda value, removed: byte_functions.trimmed(value, removed, side)


def _uuid7() -> UUID:
    """Return a UUID of version 7: 48 bits of milliseconds since the epoch, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    number = (milliseconds << 80) | random
    number = number & ~(0xF << 76) | (7 << 76)
    return UUID(int=number & ~(0b11 << 62) | (0b10 << 62))


def _uuid_version(value: UUID) -> int | None:
    return value.version


def _uuid_timestamp(value: UUID) -> datetime | None:
    """Return the time that a UUID of version 1 or 7 was made."""
    version = _uuid_version(value)
    if version == 1:
        return _GREGORIAN + timedelta(microseconds=value.time // 10)
    return _EPOCH + timedelta(milliseconds=value.int >> 80) if version == 7 else None


def _hash(name: str) -> Function:
    return lambda value: byte_functions.hash_of(value, name)


BYTES: dict[str, Entry] = {
    "bytea || bytea": _joined,
    "length(bytea)": len,
    "octet_length(bytea)": len,
    "bit_length(bytea)": lambda value: len(value) * 8,
    "bit_count(bytea)": lambda value: int.from_bytes(value, "big").bit_count(),
    "substring(bytea, int4)": _substring,
    "substring(bytea, int4, int4)": _substring,
    "substr(bytea, int4)": _substring,
    "substr(bytea, int4, int4)": _substring,
    "position(bytea, bytea)": byte_functions.position,
    "btrim(bytea, bytea)": _trimmer("both"),
    "ltrim(bytea, bytea)": _trimmer("left"),
    "rtrim(bytea, bytea)": _trimmer("right"),
    "reverse(bytea)": lambda value: value[::-1],
    "get_byte(bytea, int4)": coded(byte_functions.byte_at),
    "set_byte(bytea, int4, int4)": coded(byte_functions.with_byte),
    "get_bit(bytea, int8)": coded(byte_functions.bit_at),
    "set_bit(bytea, int8, int4)": coded(byte_functions.with_bit),
    "encode(bytea, text)": coded(byte_functions.encoded),
    "decode(text, text)": coded(byte_functions.decoded),
    "convert_from(bytea, name)": coded(_convert_from),
    "convert_to(text, name)": _convert_to,
    "length(bytea, name)": coded(lambda value, encoding: len(_convert_from(value, encoding))),
    "md5(bytea)": lambda value: hashlib.md5(value, usedforsecurity=False).hexdigest(),
    "sha224(bytea)": _hash("sha224"),
    "sha256(bytea)": _hash("sha256"),
    "sha384(bytea)": _hash("sha384"),
    "sha512(bytea)": _hash("sha512"),
    "crc32(bytea)": byte_functions.crc32,
    "crc32c(bytea)": byte_functions.crc32c,
    "gen_random_uuid()": uuid4,
    "uuidv4()": uuid4,
    "uuidv7()": _uuid7,
    "uuid_extract_version(uuid)": _uuid_version,
    "uuid_extract_timestamp(uuid)": _uuid_timestamp,
}
