"""What the functions of bytes do that DuckDB can't express: encodings, bits, hashes and checksums."""

import base64
import hashlib
import re
import zlib
from uuid import UUID

from crc32c import crc32c as castagnoli_checksum

from tailrace.sql.functions.text_functions import TextError

_LINE = 76
_GREGORIAN_OFFSET_MICROS = 12_219_292_800_000_000
_VERSION_7 = 7
_SPACES = " \n\t\r"
_OCTAL = re.compile(rb"[0-3][0-7][0-7]")


def encoded(data: bytes, name: str) -> str:
    match name.lower():
        case "hex":
            return data.hex()
        case "base64":
            text = base64.b64encode(data).decode()
            return "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
        case "escape":
            return "".join(_escaped(byte) for byte in data)
    raise TextError(f'[22023] unrecognized encoding: "{name}"')


def _escaped(byte: int) -> str:
    if byte == 0 or byte > 0x7F:
        return f"\\{byte:03o}"
    return "\\\\" if byte == 0x5C else chr(byte)


def decoded(text: str, name: str) -> bytes:
    match name.lower():
        case "hex":
            return _from_hex(text)
        case "base64":
            return _from_base64(text)
        case "escape":
            return _unescaped(text)
    raise TextError(f'[22023] unrecognized encoding: "{name}"')


def bytes_of_text(text: str) -> bytes:
    """Read the text form of bytes: `\\x0aff`, or characters with octal escapes."""
    return _from_hex(text[2:]) if text.startswith("\\x") else _unescaped(text)


def _from_hex(text: str) -> bytes:
    out = bytearray()
    at = 0
    while at < len(text):
        if text[at] in _SPACES:
            at += 1
            continue
        pair = text[at : at + 2]
        for digit in pair:
            if digit not in "0123456789abcdefABCDEF":
                raise TextError(f'[22023] invalid hexadecimal digit: "{digit}"')
        if len(pair) < 2:
            raise TextError("[22023] invalid hexadecimal data: odd number of digits")
        out.append(int(pair, 16))
        at += 2
    return bytes(out)


def _from_base64(text: str) -> bytes:
    symbols = "".join(one for one in text if one not in _SPACES)
    plain = symbols.rstrip("=")
    found = re.search("[^A-Za-z0-9+/]", plain)
    if found is not None:
        what = "unexpected" if found[0] == "=" else "invalid symbol"
        raise TextError(
            f'[22023] {what} "{found[0]}" found while decoding base64 sequence'
            if what != "unexpected"
            else '[22023] unexpected "=" while decoding base64 sequence'
        )
    ends = len(symbols) - len(plain)
    if len(symbols) % 4 or ends > 2:
        raise TextError("[22023] invalid base64 end sequence")
    return base64.b64decode(symbols)


def _unescaped(text: str) -> bytes:
    raw = text.encode()
    out = bytearray()
    at = 0
    while at < len(raw):
        if raw[at] != 0x5C:
            out.append(raw[at])
            at += 1
        elif raw[at + 1 : at + 2] == b"\\":
            out.append(0x5C)
            at += 2
        elif _OCTAL.fullmatch(raw[at + 1 : at + 4]):
            out.append(int(raw[at + 1 : at + 4], 8))
            at += 4
        else:
            raise TextError("[22P02] invalid input syntax for type bytea")
    return bytes(out)


def text_of_bytes(data: bytes) -> str:
    """Read UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.end])
        raise TextError(f'[22021] invalid byte sequence for encoding "UTF8": {wrong}') from None
    if "\0" in text:
        raise TextError('[22021] invalid byte sequence for encoding "UTF8": 0x00')
    return text


def byte_at(data: bytes, at: int) -> int:
    return data[_index(at, len(data))]


def with_byte(data: bytes, at: int, value: int) -> bytes:
    place = _index(at, len(data))
    return data[:place] + bytes((value & 0xFF,)) + data[place + 1 :]


def bit_at(data: bytes, at: int) -> int:
    place = _index(at, 8 * len(data))
    return data[place // 8] >> place % 8 & 1


def with_bit(data: bytes, at: int, value: int) -> bytes:
    place = _index(at, 8 * len(data))
    if value not in (0, 1):
        raise TextError("[22023] new bit must be 0 or 1")
    byte = data[place // 8] & ~(1 << place % 8) | value << place % 8
    return data[: place // 8] + bytes((byte,)) + data[place // 8 + 1 :]


def _index(at: int, size: int) -> int:
    if not 0 <= at < size:
        raise TextError(f"[2202E] index {at} out of valid range, 0..{size - 1}")
    return at


def position(data: bytes, part: bytes) -> int:
    return data.find(part) + 1


def trimmed(data: bytes, removed: bytes, side: str) -> bytes:
    if side != "right":
        data = data.lstrip(removed) if removed else data
    if side != "left":
        data = data.rstrip(removed) if removed else data
    return data


def hash_of(data: bytes, name: str) -> bytes:
    return hashlib.new(name, data).digest()


def crc32(data: bytes) -> int:
    return zlib.crc32(data)


def crc32c(data: bytes) -> int:
    return castagnoli_checksum(data)


def signed_integer(data: bytes, size: int) -> int:
    """Read an integer of two's complement, which may have fewer bytes than its type."""
    return int.from_bytes(data.rjust(size, b"\0"), "big", signed=True)


def uuid_microseconds(text: str) -> int:
    """Return the time of a UUID of version 1 or 7, in microseconds since 1970."""
    value = UUID(text)
    if value.version == _VERSION_7:
        return (value.int >> 80) * 1_000
    return value.time // 10 - _GREGORIAN_OFFSET_MICROS
