"""Columns of Arrow become values of a table's columns, as PostgreSQL reads texts, and what does not fit is named."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pytest

from tailrace.model.errors import SqlError
from tailrace.model.table import Column, ColumnKind, ColumnType
from tailrace.sql import arrow_values
from tailrace.sql.arrow_values import ColumnValues, read_column

LIST = ColumnType("list", element=ColumnType("integer"))


def _read(values: list[Any], kind: ColumnKind | ColumnType, type_: Any = None, *, nullable: bool = True) -> ColumnValues:
    wanted = kind if isinstance(kind, ColumnType) else ColumnType(kind)
    return read_column(pa.array(values, type_ or pa.string()), Column("c", wanted, nullable), "t")


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("integer", ["1", "-2", None, "0012", "+7"]),
        ("integer", [" 1", "0x1F", "1_000"]),
        ("smallint", ["1", "40000"]),
        ("bigint", ["9223372036854775807", "9223372036854775808", "0xFFFFFFFFFFFFFFFF"]),
        ("double", ["1", "1e3", ".5", "5.", None]),
        ("double", ["nan", "1e400", " 2 ", "x"]),
        ("date", ["2026-01-31", None]),
        ("date", ["2026-02-30", "2026-1-5", "0000-01-01"]),
        ("timestamp", ["2026-01-31 10:00:00", "2026-01-31T10:00:00.5Z", "2026-01-31 10:00:00.123456+00"]),
        ("timestamp", ["2026-01-31 10:00:00+02", "2026-01-31 24:00:00", "nonsense", "2026-01-31"]),
    ],
)
def test_the_fast_paths_read_as_the_general_one(kind: ColumnKind, texts: list[str | None]) -> None:
    fast = _read(texts, kind)
    with (
        mock.patch.object(arrow_values, "_fast_read_numbers", return_value=None),
        mock.patch.object(arrow_values, "_fast_read_times", return_value=None),
    ):
        general = _read(texts, kind)
    assert [_in_utc(value) for value in fast.values] == [_in_utc(value) for value in general.values]
    assert fast.invalid == general.invalid


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("integer", "abc", 'invalid input syntax for type integer: "abc"'),
        ("smallint", "40000", 'value "40000" is out of range for type smallint'),
        ("boolean", "perhaps", 'invalid input syntax for type boolean: "perhaps"'),
        ("double", "1,5", 'invalid input syntax for type double precision: "1,5"'),
        ("uuid", "x", 'invalid input syntax for type uuid: "x"'),
        (ColumnType("decimal", 4, 2), "123.4", "numeric field overflow: precision 4, scale 2"),
        (LIST, "1,2", 'malformed array literal: "1,2"'),
    ],
)
def test_an_invalid_text_is_named_with_postgresqls_message(kind: Any, text: str, reason: str) -> None:
    found = _read([None, text], kind)
    assert [(one.row, one.column, one.value, one.reason) for one in found.invalid] == [(1, "c", text, reason)]


def test_a_null_in_a_column_that_has_none_is_named() -> None:
    (found,) = _read(["1", None], "integer", nullable=False).invalid
    assert (found.row, found.value, found.sqlstate) == (1, None, "23502")


@pytest.mark.parametrize(
    ("kind", "type_", "values", "expected"),
    [
        ("integer", pa.int64(), [1, None], [1, None]),
        ("double", pa.float32(), [1.5, None], [1.5, None]),
        ("double", pa.int32(), [2], [2]),
        (ColumnType("decimal", 10, 2), pa.decimal128(12, 3), [Decimal("1.250")], [Decimal("1.250")]),
        (ColumnType("decimal"), pa.decimal128(12, 3), [Decimal("1.250")], [Decimal("1.250")]),
        (ColumnType("decimal"), pa.string(), ["1.50", "Infinity", None], [Decimal("1.50"), Decimal("Infinity"), None]),
        (ColumnType("decimal", 38, 2), pa.string(), ["9" * 36 + ".99"], [Decimal("9" * 36 + ".99")]),
        ("text", pa.large_string(), ["x"], ["x"]),
        ("bytes", pa.binary(), [b"\x00"], [b"\x00"]),
        ("date", pa.date32(), [date(2026, 1, 31)], [date(2026, 1, 31)]),
        ("timestamp", pa.timestamp("ns"), [datetime(2026, 1, 31, 10, tzinfo=UTC)], [datetime(2026, 1, 31, 10, tzinfo=UTC)]),
        ("timestamp", pa.timestamp("s", "UTC"), [datetime(2026, 1, 31, tzinfo=UTC)], [datetime(2026, 1, 31, tzinfo=UTC)]),
        ("uuid", pa.binary(16), [b"\x01" * 16], [UUID(bytes=b"\x01" * 16)]),
        ("json", pa.struct([("a", pa.int64())]), [{"a": 1}], [{"a": 1}]),
        (LIST, pa.list_(pa.int64()), [[1, None]], [[1, None]]),
        ("integer", pa.null(), [None], [None]),
    ],
)
def test_arrow_types_of_the_same_family_are_taken(kind: Any, type_: Any, values: list[Any], expected: list[Any]) -> None:
    found = _read(values, kind, type_)
    assert list(found.values) == expected
    assert not found.invalid


@pytest.mark.parametrize(
    ("kind", "type_", "values"),
    [
        ("integer", pa.float64(), [1.0]),
        ("text", pa.int64(), [1]),
        ("boolean", pa.int8(), [1]),
        ("date", pa.timestamp("us"), [datetime(2026, 1, 31, tzinfo=UTC)]),
        (LIST, pa.list_(pa.string()), [["x"]]),
    ],
)
def test_arrow_types_of_another_family_are_refused(kind: Any, type_: Any, values: list[Any]) -> None:
    with pytest.raises(SqlError, match="can't store values of Arrow's"):
        _read(values, kind, type_)


@pytest.mark.parametrize(
    ("kind", "type_", "values"),
    [
        ("smallint", pa.int64(), [1, 40_000]),
        ("double", pa.float64(), [1.0, float("nan")]),
        (ColumnType("decimal", 4, 2), pa.decimal128(12, 3), [Decimal(1), Decimal(123)]),
    ],
)
def test_a_value_of_arrow_that_does_not_fit_is_named(kind: Any, type_: Any, values: list[Any]) -> None:
    assert [one.row for one in _read(values, kind, type_).invalid] == [1]


@pytest.mark.parametrize(
    "type_",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.string_view(),
        pa.list_view(pa.int8()),
        pa.struct([("a", pa.list_(pa.string_view()))]),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
)
def test_types_of_which_few_bytes_stand_for_many_values_are_not_plain(type_: Any) -> None:
    assert not arrow_values.is_plain(type_)


def test_items_of_lists_are_counted_with_those_that_take_no_bytes() -> None:
    assert arrow_values.item_count(pa.array([[None] * 5, [None]], pa.list_(pa.null()))) == 6
    assert arrow_values.item_count(pa.chunked_array([pa.array([{"a": [1, 2]}])])) == 3
