"""Metrics as OpenTelemetry's protobuf encodes them, field by field."""

from collections.abc import Sequence
from struct import pack

Number = int | float


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def point(value: Number) -> bytes:
    """A NumberDataPoint with an attribute, a time and a value."""
    attribute = field(7, field(1, b"node.id") + field(2, field(1, b"0")))
    at = varint(3 << 3 | 1) + pack("<Q", 1_700_000_000_000_000_000)
    number = varint(6 << 3 | 1) + pack("<q", value) if isinstance(value, int) else varint(4 << 3 | 1) + pack("<d", value)
    return field(1, attribute + at + number)


def metric(name: str, *values: Number, is_sum: bool = False) -> bytes:
    points = b"".join(map(point, values))
    if not is_sum:
        return field(1, name.encode()) + field(3, b"ms") + field(5, points)
    cumulative_and_monotonic = bytes([2 << 3, 2, 3 << 3, 1])
    return field(1, name.encode()) + field(7, points + cumulative_and_monotonic)


def metrics_data(metrics: Sequence[bytes]) -> bytes:
    scope = field(1, field(1, b"scope")) + b"".join(field(2, each) for each in metrics)
    resource = field(1, field(1, field(1, b"client_rack") + field(2, field(1, b"r"))))
    return field(1, resource + field(2, scope))
