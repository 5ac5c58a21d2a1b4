"""The shortest form of a real is the one that PostgreSQL prints."""

import math
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.sql.analysis.input_texts import nearest_float4
from tailrace.sql.functions.float_texts import float4_text, shortest_float4


@given(st.floats(width=32, allow_nan=False))
@example(8999999488.0)
@example(3.4028234663852886e38)
@example(-3.4028234663852886e38)
@example(1.401298464324817e-45)
def test_shortest_float4_is_the_text_of_float4(value: float) -> None:
    assert shortest_float4(value) == float(float4_text(value))
    assert nearest_float4(shortest_float4(value)) == value


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(9007199791611905)
def test_nearest_float4_of_an_integer_has_no_nearer_neighbour(number: int) -> None:
    found = nearest_float4(number)
    (bits,) = struct.unpack("i", struct.pack("f", abs(found)))
    neighbours = [struct.unpack("f", struct.pack("i", bits + step))[0] for step in (-1, 1) if bits + step >= 0]
    assert all(abs(int(found) - number) <= abs(int(math.copysign(one, found)) - number) for one in neighbours)
