"""Reads metrics in OpenTelemetry's format (OTLP `MetricsData` v1, protobuf): names and numbers, and nothing else.

Of gauges and sums with several data points (one for each broker or partition) the greatest and the total are returned.
Histograms and summaries are skipped. Time and memory are bounded by the size of the data.
"""

from collections.abc import Iterator
from math import isfinite
from struct import Struct
from typing import NamedTuple

from tailrace.model.commit import Buffer
from tailrace.model.errors import InvalidRecordsError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_DOUBLE = Struct("<d")
_SIGNED = Struct("<q")

# Numbers of fields, by message.
_RESOURCE_METRICS = 1  # MetricsData
_SCOPE_METRICS = 2  # ResourceMetrics
_METRICS = 2  # ScopeMetrics
_NAME, _GAUGE, _SUM = 1, 5, 7  # Metric
_DATA_POINTS = 1  # Gauge, Sum
_AS_DOUBLE, _AS_INT = 4, 6  # NumberDataPoint


class ReadMetric(NamedTuple):
    name: str
    value: float
    is_sum: bool


class _Field(NamedTuple):
    number: int
    kind: int
    begin: int
    """Where the content begins, without its length."""
    end: int


def read_metrics(data: Buffer) -> list[ReadMetric]:
    """Return the gauges and sums, in their order. Raises `InvalidRecordsError` for what is not OTLP."""
    found = []
    for metric in _nested(data, 0, len(data), (_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS)):
        read = _read_metric(data, metric)
        if read is not None:
            found.append(read)
    return found


def _nested(data: Buffer, begin: int, end: int, path: tuple[int, ...]) -> Iterator[_Field]:
    """Yield the messages at the end of a path of field numbers."""
    for field in _fields(data, begin, end):
        if field.number == path[0] and field.kind == _BYTES:
            if len(path) == 1:
                yield field
            else:
                yield from _nested(data, field.begin, field.end, path[1:])


def _read_metric(data: Buffer, metric: _Field) -> ReadMetric | None:
    name = ""
    value: float | None = None
    is_sum = False
    for field in _fields(data, metric.begin, metric.end):
        if field.kind != _BYTES:
            continue
        if field.number == _NAME:
            name = str(data[field.begin : field.end], "utf-8", "replace")
        elif field.number in (_GAUGE, _SUM):
            is_sum = field.number == _SUM
            for number in _numbers(data, field):
                value = number if value is None else value + number if is_sum else max(value, number)
    return None if value is None or not isfinite(value) else ReadMetric(name, value, is_sum)


def _numbers(data: Buffer, of: _Field) -> Iterator[float]:
    for point in _nested(data, of.begin, of.end, (_DATA_POINTS,)):
        for field in _fields(data, point.begin, point.end):
            if field.kind == _FIXED64 and field.number in (_AS_DOUBLE, _AS_INT):
                (number,) = (_DOUBLE if field.number == _AS_DOUBLE else _SIGNED).unpack_from(data, field.begin)
                if isfinite(number):
                    yield float(number)


def _fields(data: Buffer, at: int, end: int) -> Iterator[_Field]:
    while at < end:
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == _VARINT:
            begin = at
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            size, begin = _varint(data, at, end)
            at = begin + size
        elif kind in (_FIXED64, _FIXED32):
            begin = at
            at += 8 if kind == _FIXED64 else 4
        else:
            raise _invalid(f"a field has the wire type {kind}")
        if at > end:
            raise _invalid("a field is cut off")
        yield _Field(key >> 3, kind, begin, at)


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _MOST_VARINT_BYTES, 7):
        if at >= end:
            raise _invalid("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _invalid("a number has more than 64 bits")


def _invalid(why: str) -> InvalidRecordsError:
    return InvalidRecordsError(f"the metrics can't be read as OTLP: {why}")
