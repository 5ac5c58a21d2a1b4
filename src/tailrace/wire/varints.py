"""Numbers of one to ten bytes, small ones in one: zigzag varints, as records have them."""

from tailrace.model.errors import CorruptBatchError

VARINT_BYTES = 10
"""At most."""


def encode_varint(number: int) -> bytes:
    """A number of up to 64 bits."""
    if 0 <= number < SHORT:
        return SHORT_VARINTS[number]
    return _encode_varint(number)


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. `IndexError` if it is cut off."""
    number = data[at]
    at += 1
    if number < 0x80:
        return (number >> 1) ^ -(number & 1), at
    return long_varint(data, at)


def long_varint(data: bytes, at: int) -> tuple[int, int]:
    """Go on with a number whose first byte, before `at`, says that there is more."""
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


def _encode_varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


SHORT = 1 << 11
"""Numbers below it are looked up. The loops over records do that themselves: a call for each would cost more."""
SHORT_VARINTS = [_encode_varint(number) for number in range(SHORT)]
