"""Varints are encoded and decoded."""

import pytest

from tailrace.model.errors import CorruptBatchError
from tailrace.wire.varints import SHORT, decode_varint, encode_varint


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (1, b"\x02"),
        (63, b"\x7e"),
        (64, b"\x80\x01"),
        (-64, b"\x7f"),
        (-65, b"\x81\x01"),
        (2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\x01"),
        (-(2**63), b"\xff" * 9 + b"\x01"),
    ],
)
def test_small_numbers_take_one_byte_whatever_their_sign(number: int, encoded: bytes) -> None:
    assert encode_varint(number) == encoded
    assert decode_varint(b"?" + encoded + b"?", 1) == (number, 1 + len(encoded))


def test_numbers_that_are_looked_up_and_those_that_are_not_come_back() -> None:
    for number in range(SHORT - 3, SHORT + 3):
        assert decode_varint(encode_varint(number), 0)[0] == number


def test_a_number_that_is_cut_off_or_never_ends_is_no_number() -> None:
    with pytest.raises(IndexError):
        decode_varint(b"\x80", 0)
    with pytest.raises(CorruptBatchError, match="more than 10 bytes"):
        decode_varint(b"\x80" * 12, 0)
