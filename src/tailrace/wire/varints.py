"""Integers of variable length: zigzag varints, as records have them, and unsigned varints, as flexible messages have them."""

from tailrace.model.errors import CorruptBatchError

VARINT_BYTES = 10
"""The most bytes that a varint of 64 bits has."""


def encode_varint(number: int) -> bytes:
    """Encode a number of up to 64 bits."""
    if 0 <= number < SHORT:
        return SHORT_VARINTS[number]
    return _encode_varint(number)


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends. Raises `IndexError` if it is cut off."""
    number = data[at]
    at += 1
    if number < 0x80:
        return (number >> 1) ^ -(number & 1), at
    return long_varint(data, at)


def long_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of more than one byte, whose second byte is at `at`, and where it ends."""
    number = data[at - 1] & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift >= 7 * VARINT_BYTES:
            raise CorruptBatchError(f"the batch has a number of more than {VARINT_BYTES} bytes")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    write_unsigned_varint(encoded, (number << 1) ^ (number >> 63))
    return bytes(encoded)


SHORT = 1 << 11
"""Varints of smaller numbers are looked up. The loops over records do so inline: a call for each would cost more."""
SHORT_VARINTS = [_encode_varint(number) for number in range(SHORT)]
