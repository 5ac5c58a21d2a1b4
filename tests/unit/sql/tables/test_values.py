"""What each type of column takes, what it makes of it, and what readers get back."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from tailrace.model.errors import ConstraintError, SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.tables.values import codec_of, stored

DECIMAL = ColumnType("decimal", precision=6, scale=2)
INTEGERS = ColumnType("list", element=ColumnType("integer"))
U = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"


@pytest.mark.parametrize(
    ("type_", "given", "kept", "loaded"),
    [
        (ColumnType("boolean"), True, 1, True),
        (ColumnType("boolean"), "off", 0, False),
        (ColumnType("smallint"), -32768, -32768, -32768),
        (ColumnType("bigint"), (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1),
        (ColumnType("integer"), " 42 ", 42, 42),
        (ColumnType("integer"), 7.0, 7, 7),
        (ColumnType("double"), 3, 3.0, 3.0),
        (ColumnType("double"), Decimal("0.1"), 0.1, 0.1),
        (DECIMAL, "1.005", "1.01", Decimal("1.01")),
        (DECIMAL, 1, "1.00", Decimal("1.00")),
        (DECIMAL, 0.1, "0.10", Decimal("0.10")),
        (DECIMAL, "-0.001", "0.00", Decimal("0.00")),
        (DECIMAL, "9999.99", "9999.99", Decimal("9999.99")),
        (ColumnType("text"), "", "", ""),
        (ColumnType("bytes"), b"\0\xff", b"\0\xff", b"\0\xff"),
        (ColumnType("bytes"), "\\x0aFF", b"\x0a\xff", b"\x0a\xff"),
        (ColumnType("date"), "2026-02-28", "2026-02-28", date(2026, 2, 28)),
        (ColumnType("date"), date(2026, 2, 28), "2026-02-28", date(2026, 2, 28)),
        (
            ColumnType("timestamp"),
            "2026-01-31 13:45:00.5+02:00",
            "2026-01-31T11:45:00.500000Z",
            datetime(2026, 1, 31, 11, 45, 0, 500_000, tzinfo=UTC),
        ),
        (ColumnType("timestamp"), "2026-01-31", "2026-01-31T00:00:00.000000Z", datetime(2026, 1, 31, tzinfo=UTC)),
        (ColumnType("uuid"), U.upper(), U, UUID(U)),
        (ColumnType("json"), '{"b" : 1.50, "a": [ ]}', '{"b":1.50,"a":[]}', {"b": 1.5, "a": []}),
        (ColumnType("json"), {"a": None}, '{"a":null}', {"a": None}),
        (INTEGERS, [1, None, "3"], "[1,null,3]", [1, None, 3]),
        (INTEGERS, "[1, 2]", "[1,2]", [1, 2]),
        (ColumnType("list", element=DECIMAL), ["1.5"], '["1.50"]', [Decimal("1.50")]),
        (ColumnType("list", element=ColumnType("bytes")), [b"\x0a"], '["Cg=="]', [b"\x0a"]),
        (ColumnType("list", element=ColumnType("json")), [{"a": 1}], '[{"a":1}]', [{"a": 1}]),
        (ColumnType("list", element=ColumnType("boolean")), [True, "no"], "[true,false]", [True, False]),
        (ColumnType("list", element=INTEGERS), [[1], []], "[[1],[]]", [[1], []]),
    ],
)
def test_a_value_is_kept_in_one_form_and_read_as_its_type(
    type_: ColumnType, given: object, kept: object, loaded: object
) -> None:
    found = stored(given, Column("c", type_))
    assert (found, type(found)) == (kept, type(kept))
    again = codec_of(type_).load(found)
    assert (again, type(again)) == (loaded, type(loaded))
    if type_.kind != "json":  # whose numbers are kept as they were written
        assert stored(again, Column("c", type_)) == kept


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (ColumnType("boolean"), 2),
        (ColumnType("boolean"), "perhaps"),
        (ColumnType("smallint"), 32768),
        (ColumnType("integer"), 1 << 31),
        (ColumnType("bigint"), 1 << 63),
        (ColumnType("integer"), 1.5),
        (ColumnType("integer"), True),
        (ColumnType("integer"), "9" * 10_000),
        (ColumnType("integer"), float("inf")),
        (ColumnType("double"), float("nan")),
        (ColumnType("double"), "1e999"),
        (ColumnType("double"), b"1"),
        (DECIMAL, "10000"),
        (DECIMAL, "9999.995"),
        (DECIMAL, "NaN"),
        (DECIMAL, "1e1000000000"),
        (DECIMAL, "1e-1000000000"),
        (DECIMAL, "one"),
        (ColumnType("text"), 1),
        (ColumnType("text"), "a\0b"),
        (ColumnType("text"), "\ud800"),
        (ColumnType("bytes"), "0aff"),
        (ColumnType("bytes"), "\\x0"),
        (ColumnType("date"), "2026-02-30"),
        (ColumnType("date"), 20260228),
        (ColumnType("timestamp"), "yesterday"),
        (ColumnType("timestamp"), "0001-01-01T00:00:00+01:00"),
        (ColumnType("timestamp"), 5),
        (ColumnType("uuid"), "f81d4fae"),
        (ColumnType("uuid"), 7),
        (ColumnType("json"), "{'a': 1}"),
        (ColumnType("json"), "[" * 100_000),
        (ColumnType("json"), {"a": object()}),
        (INTEGERS, "1, 2"),
        (INTEGERS, [1, "x"]),
        (INTEGERS, {"a": 1}),
    ],
)
def test_what_does_not_fit_is_refused_with_column_type_and_value(type_: ColumnType, given: object) -> None:
    with pytest.raises(SqlError) as refused:
        stored(given, Column("amount", type_))
    assert f"column 'amount' is {type_} and can't store" in str(refused.value)
    assert len(str(refused.value)) < 400


def test_null_is_refused_where_none_may_be_also_as_json() -> None:
    column = Column("c", ColumnType("json"), nullable=False)
    for null in (None, "null"):
        with pytest.raises(ConstraintError, match="'c' can't be null"):
            stored(null, column)
    assert stored("null", Column("c", ColumnType("json"))) is None
