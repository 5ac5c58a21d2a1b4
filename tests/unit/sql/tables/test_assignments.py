"""Constants and parameters are assigned to columns as PostgreSQL does it."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from tailrace.model.errors import ConstraintError, SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.tables.assignments import assigned, assigned_column

DECIMAL = ColumnType("decimal", 5, 2)
FREE = ColumnType("decimal")
INTEGERS = ColumnType("list", element=ColumnType("integer"))


@pytest.mark.parametrize(
    ("type_", "value", "kept"),
    [
        (ColumnType("integer"), Decimal("2.5"), 3),
        (ColumnType("integer"), 2.5, 2),
        (ColumnType("integer"), " 12 ", 12),
        (ColumnType("text"), 5, "5"),
        (ColumnType("text"), True, "true"),
        (ColumnType("text"), Decimal("1.50"), "1.50"),
        (ColumnType("boolean"), "yes", 1),
        (DECIMAL, Decimal("1.005"), "1.01"),
        (DECIMAL, "1.005", "1.01"),
        (FREE, Decimal("1.500"), "1.500"),
        (FREE, "1.500", "1.500"),
        (FREE, " 15e-1 ", "1.5"),
        (FREE, 0.1, "0.1"),
        (FREE, 10**40, "1" + "0" * 40),
        (FREE, "inf", "Infinity"),
        (FREE, Decimal("NaN"), "NaN"),
        (FREE, Decimal("-0.00"), "0.00"),
        (FREE, "9" * 131_072 + "." + "9" * 16_383, "9" * 131_072 + "." + "9" * 16_383),
        (ColumnType("bytes"), "\\x0aff", b"\n\xff"),
        (ColumnType("bytes"), "a\\001", b"a\x01"),
        (ColumnType("timestamp"), "2026-01-31 13:45:00+02:00", "2026-01-31T11:45:00.000000Z"),
        (ColumnType("timestamp"), "January 31, 2026", "2026-01-31T00:00:00.000000Z"),
        (ColumnType("timestamp"), datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00.000000Z"),
        (ColumnType("timestamp"), date(2026, 1, 31), "2026-01-31T00:00:00.000000Z"),
        (ColumnType("date"), "31 Jan 2026", "2026-01-31"),
        (ColumnType("date"), datetime(2026, 1, 31, 5, tzinfo=UTC), "2026-01-31"),
        (ColumnType("uuid"), UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (ColumnType("uuid"), "{00000000-0000-0000-0000-000000000005}", "00000000-0000-0000-0000-000000000005"),
        (ColumnType("json"), '{"b": 1.10, "a": 2, "b": 3}', '{"a":2,"b":3}'),
        (ColumnType("json"), {"a": [1, None]}, '{"a":[1,null]}'),
        (ColumnType("json"), [1, "x"], '[1,"x"]'),
        (INTEGERS, "{1,2,NULL}", "[1,2,null]"),
        (INTEGERS, [1, 2], "[1,2]"),
    ],
)
def test_a_value_is_cast_as_on_assignment(type_: ColumnType, value: object, kept: object) -> None:
    assert assigned(value, Column("c", type_)) == kept


@pytest.mark.parametrize(
    ("type_", "value", "sqlstate"),
    [
        (ColumnType("integer"), True, "42804"),
        (ColumnType("boolean"), 1, "42804"),
        (ColumnType("timestamp"), 5, "42804"),
        (ColumnType("integer"), "x", "22P02"),
        (ColumnType("integer"), 1 << 31, "22003"),
        (ColumnType("smallint"), Decimal("40000.4"), "22003"),
        (ColumnType("integer"), "1.5", "22P02"),
        (ColumnType("double"), Decimal("1e400"), "22003"),
        (ColumnType("double"), Decimal("1e-400"), "22003"),
        (DECIMAL, 1000, "22003"),
        (DECIMAL, "1000", "22003"),
        (DECIMAL, "NaN", "0A000"),
        (FREE, "1e131072", "22003"),
        (FREE, Decimal("1e-16384"), "22003"),
        (FREE, "", "22P02"),
        (FREE, True, "42804"),
        (ColumnType("date"), "2026-02-30", "22008"),
        (ColumnType("timestamp"), "2026-02-30 00:00:00", "22008"),
        (ColumnType("uuid"), "f81d4fae", "22P02"),
        (ColumnType("json"), "{'a': 1}", "22P02"),
        (INTEGERS, "[1, 2]", "0A000"),
        (ColumnType("bytes"), "\\xzz", "22023"),
    ],
)
def test_what_postgres_does_not_assign_is_refused_with_its_code(type_: ColumnType, value: object, sqlstate: str) -> None:
    for assign in (assigned, lambda value, column: assigned_column([value], column)):
        with pytest.raises(SqlError) as refused:
            assign(value, Column("amount", type_))
        assert refused.value.sqlstate == sqlstate
        assert "amount" in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (ColumnType("integer"), [1, None, 3]),
        (ColumnType("integer"), [1, "2", 3]),
        (ColumnType("double"), [1.0, 2, None]),
        (ColumnType("double"), [1.0, 2, Decimal("0.5")]),
        (ColumnType("text"), ["a", None]),
        (ColumnType("text"), [None, None]),
        (DECIMAL, ["1", 2, None]),
        (FREE, ["1.50", 2, None, 0.5, Decimal("1e2"), "NaN", -(10**30)]),
    ],
)
def test_many_values_at_once_are_kept_as_each_by_itself(type_: ColumnType, values: list[object]) -> None:
    column = Column("c", type_)
    assert list(assigned_column(values, column)) == [assigned(value, column) for value in values]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (ColumnType("integer"), [1, 1 << 31]),
        (ColumnType("double"), [1.0, float("nan")]),
        (ColumnType("double"), [1.0, 10**400]),
        (ColumnType("double"), [1, Decimal("1e999")]),
        (ColumnType("double"), [1, True]),
        (ColumnType("text"), ["a", "b\0"]),
        (ColumnType("integer"), [1, True]),
    ],
)
def test_one_wrong_value_among_many_is_found(type_: ColumnType, values: list[object]) -> None:
    with pytest.raises(SqlError, match="column"):
        assigned_column(values, Column("c", type_))


def test_one_null_among_many_is_found() -> None:
    with pytest.raises(ConstraintError):
        assigned_column([1, None], Column("c", ColumnType("integer"), nullable=False))
