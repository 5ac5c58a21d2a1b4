"""Metrics are read from OTLP, and nothing that is not OTLP is."""

from random import Random
from struct import pack

import pytest

from tailrace.model.errors import InvalidRecordsError
from tailrace.wire.otlp import ReadMetric, read_metrics
from tests.support.otlp import field, metric, metrics_data, varint


def test_gauges_and_sums_are_read_in_their_order() -> None:
    data = metrics_data([metric("a.rate", 0.5), metric("a.total", 7, is_sum=True), metric("a.count", -3)])
    assert read_metrics(data) == [
        ReadMetric("a.rate", 0.5, False),
        ReadMetric("a.total", 7.0, True),
        ReadMetric("a.count", -3.0, False),
    ]
    assert read_metrics(data + data) == read_metrics(data) * 2


def test_data_points_of_a_metric_are_put_together() -> None:
    data = metrics_data([metric("total", 1, 2.5, 4, is_sum=True), metric("highest", 3.0, 9, 1)])
    assert read_metrics(data) == [ReadMetric("total", 7.5, True), ReadMetric("highest", 9.0, False)]


def test_numbers_that_are_none_and_other_kinds_are_skipped() -> None:
    histogram = field(1, b"h") + field(9, field(1, pack("<BQ", 4 << 3 | 1, 3)))
    data = metrics_data([metric("nan", float("nan")), metric("inf", float("inf")), metric("empty"), histogram])
    assert read_metrics(data) == []
    assert read_metrics(metrics_data([metric("some", float("nan"), 2.0)])) == [ReadMetric("some", 2.0, False)]


def test_unknown_fields_are_skipped() -> None:
    unknown = varint(99 << 3) + b"\x05" + varint(98 << 3 | 5) + bytes(4) + varint(97 << 3 | 1) + bytes(8) + field(96, b"x")
    assert read_metrics(unknown + metrics_data([unknown + metric("a", 1)]) + unknown) == [ReadMetric("a", 1.0, False)]


def test_no_metrics_are_read_from_nothing() -> None:
    assert read_metrics(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        field(1, b"x")[:-1] + b"",
        varint(1 << 3 | 2) + varint(1 << 40),
        b"\x80" * 11,
        varint(1 << 3 | 3),
        varint(1 << 3 | 1) + bytes(7),
        b"\x08",
        metrics_data([metric("a", 1)])[:-1],
        field(1, field(2, field(2, field(5, field(1, varint(4 << 3 | 1) + bytes(7)))))),
    ],
)
def test_what_is_cut_off_or_malformed_is_invalid(data: bytes) -> None:
    with pytest.raises(InvalidRecordsError):
        read_metrics(data)


def test_damaged_metrics_are_read_or_invalid_and_nothing_else() -> None:
    random = Random(7)
    whole = metrics_data([metric(f"m{number}", number, 0.5, is_sum=number % 2 == 0) for number in range(20)])
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            read_metrics(damaged)
        except InvalidRecordsError:
            continue
