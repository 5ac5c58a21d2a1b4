"""A checked expression of a route: every part with its type, and nothing in it that engines would have to guess.

`check` makes it from what the user wrote, `compile` turns it into SQL. Casts are explicit, constants have the type that they
are compared with, and each operator is one of `operators`.
"""

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from tailrace.model.table import ColumnType

Image = Literal["old", "new", "row"]
"""`row` is the row that an operation leaves, or for a delete the one that it removes."""

TRY = "try_"
"""Before the name of an operator: it is null where it would fail."""

Value = bool | int | float | str | Decimal | date | datetime | None


class ColumnValue(NamedTuple):
    name: str
    image: Image
    type: ColumnType


class Constant(NamedTuple):
    value: Value
    type: ColumnType


class Call(NamedTuple):
    """An operator or function. The operands of `case` are conditions and results by turns, then the last resort."""

    operator: str
    operands: "tuple[Expression, ...]"
    type: ColumnType


Expression = ColumnValue | Constant | Call


def columns_of(expression: Expression) -> Iterator[ColumnValue]:
    """The columns that it looks at, each as often as it does."""
    if isinstance(expression, ColumnValue):
        yield expression
    elif isinstance(expression, Call):
        for operand in expression.operands:
            yield from columns_of(operand)


BOOLEAN = ColumnType("boolean")
BIGINT = ColumnType("bigint")
DOUBLE = ColumnType("double")
TEXT = ColumnType("text")
DATE = ColumnType("date")
TIMESTAMP = ColumnType("timestamp")
UUID = ColumnType("uuid")
