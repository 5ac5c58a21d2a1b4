"""Exact arithmetic for decimal columns, which SQLite stores as text.

The collation `tr_decimal` orders them as numbers; the functions compute with all digits. A quotient has sixteen digits after
the decimal point, or as many as its operands if that is more.
"""

from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any

import apsw

from tailrace.model.errors import SqlError
from tailrace.sql.tables.values import DECIMALS, InvalidValueError, shown, store_decimal

COLLATION = "tr_decimal"

_QUOTIENT_DIGITS = 16

_Value = Any
"""What SQLite passes to a function: a number, text, bytes or `None`."""


def register_decimals(connection: apsw.Connection) -> None:
    connection.create_collation(COLLATION, _compare)
    functions: tuple[tuple[str, Callable[..., str | None], int], ...] = (
        ("add", _add, 2),
        ("sub", _subtract, 2),
        ("mul", _multiply, 2),
        ("div", _divide, 2),
        ("mod", _remainder, 2),
        ("abs", _absolute, 1),
        ("round", _round, 2),
    )
    for name, function, arguments in functions:
        connection.create_scalar_function(f"tr_decimal_{name}", function, arguments, deterministic=True)
    connection.create_window_function("tr_decimal_sum", _Sum, 1)
    connection.create_window_function("tr_decimal_avg", _Average, 1)


def _compare(left: str, right: str) -> int:
    if left == right:
        return 0
    a, b = _sortable(left), _sortable(right)
    return (a > b) - (a < b)


def _sortable(text: str) -> Decimal:
    try:
        return Decimal(text)
    except DecimalException:
        # Text that is not a number can only come from a query; it is ordered after all numbers.
        return Decimal("Infinity")


def _number(value: _Value) -> Decimal:
    try:
        return Decimal(store_decimal(value, None, None))
    except InvalidValueError as why:
        raise SqlError(f"{shown(value)} is not a decimal: {why}") from None


def _text(number: Decimal) -> str:
    try:
        return store_decimal(number, None, None)
    except InvalidValueError as why:
        raise SqlError(f"the result does not fit into a decimal: {why}") from None


def _add(left: _Value, right: _Value) -> str | None:
    return None if left is None or right is None else _text(DECIMALS.add(_number(left), _number(right)))


def _subtract(left: _Value, right: _Value) -> str | None:
    return None if left is None or right is None else _text(DECIMALS.subtract(_number(left), _number(right)))


def _multiply(left: _Value, right: _Value) -> str | None:
    return None if left is None or right is None else _text(DECIMALS.multiply(_number(left), _number(right)))


def _divide(left: _Value, right: _Value) -> str | None:
    if left is None or right is None:
        return None
    return _quotient(_number(left), _number(right))


def _remainder(left: _Value, right: _Value) -> str | None:
    if left is None or right is None:
        return None
    by = _number(right)
    if not by:
        raise SqlError("division by zero")
    return _text(DECIMALS.remainder(_number(left), by))


def _quotient(number: Decimal, by: Decimal) -> str:
    if not by:
        raise SqlError("division by zero")
    digits = max(_QUOTIENT_DIGITS, _scale(number), _scale(by))
    return _text(DECIMALS.divide(number, by).quantize(Decimal(1).scaleb(-digits), context=DECIMALS))


def _scale(number: Decimal) -> int:
    return max(0, -int(number.as_tuple().exponent))


def _absolute(value: _Value) -> str | None:
    return None if value is None else _text(abs(_number(value)))


def _round(value: _Value, digits: _Value) -> str | None:
    if value is None or digits is None:
        return None
    digits = max(-1000, min(1000, int(digits)))
    return _text(_number(value).quantize(Decimal(1).scaleb(-digits), context=DECIMALS))


class _Sum:
    """`sum` of decimals, as an aggregate and over a window."""

    def __init__(self) -> None:
        self._sum = Decimal(0)
        self._count = 0

    def step(self, value: _Value) -> None:
        if value is not None:
            self._sum = DECIMALS.add(self._sum, _number(value))
            self._count += 1

    def inverse(self, value: _Value) -> None:
        if value is not None:
            self._sum = DECIMALS.subtract(self._sum, _number(value))
            self._count -= 1

    def value(self) -> str | None:
        return _text(self._sum) if self._count else None

    def final(self) -> str | None:
        return self.value()


class _Average(_Sum):
    def value(self) -> str | None:
        return _quotient(self._sum, Decimal(self._count)) if self._count else None
