"""What people write on the command line: parameters of SQL and places to begin."""

import time
from typing import Any

import pytest

from tailrace.cli.consume import parse_start
from tailrace.cli.errors import UsageError
from tailrace.cli.sql.command import read_parameters


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (["42", "1.5", "true", "null"], [42, 1.5, True, None]),
        (["hello", "it's", "007", "2026-01-28"], ["hello", "it's", "007", "2026-01-28"]),
        (['"42"', '"a=b"', "[1, 2]"], ["42", "a=b", [1, 2]]),
        (["id=42", "name=ann"], {"id": 42, "name": "ann"}),
        (["where=a=b", "empty="], {"where": "a=b", "empty": ""}),
        (["1=1"], ["1=1"]),
    ],
)
def test_a_parameter_is_json_or_else_text(given: list[str], values: Any) -> None:
    assert read_parameters(given) == values


@pytest.mark.parametrize("given", [["1", "id=2"], ["id=1", "id=2"]])
def test_parameters_that_contradict_each_other_are_rejected(given: list[str]) -> None:
    with pytest.raises(UsageError):
        read_parameters(given)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ("4711", 4711),
        ("1970-01-01T00:00:01Z", {"timestamp_ms": 1_000}),
        ("1970-01-01T00:00:01", {"timestamp_ms": 1_000}),
        ("1970-01-01T01:00:01.5+01:00", {"timestamp_ms": 1_500}),
        ("1970-01-02", {"timestamp_ms": 86_400_000}),
    ],
)
def test_a_start_is_an_edge_an_offset_or_a_time(text: str, start: object) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7_200), ("3d", 259_200)])
def test_a_start_may_be_so_long_ago(text: str, seconds: int) -> None:
    before = round(time.time() * 1000)
    start = parse_start(text)
    after = round(time.time() * 1000)
    assert isinstance(start, dict)
    assert before <= start["timestamp_ms"] + seconds * 1000 <= after


@pytest.mark.parametrize("text", ["", "-1", "soon", "1.5", "9" * 30, "10 m", "٣", "2026-13-01"])
def test_anything_else_is_no_start(text: str) -> None:
    with pytest.raises(UsageError, match="is not a position"):
        parse_start(text)
