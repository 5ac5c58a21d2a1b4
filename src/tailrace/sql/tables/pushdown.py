"""The part of a WHERE that SQLite can decide with the same meaning as PostgreSQL: it finds rows by their key or by ranges.

Values of a column are stored so that SQLite orders them as PostgreSQL does: texts and bytes by their bytes, dates, times and
UUIDs as texts of one form, decimals and intervals by collations. So a comparison of a column with a value of the same type that
does not depend on the row means the same in both. All other conditions are evaluated in Python for the rows that SQLite finds.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tailrace.model.table import Table
from tailrace.sql.analysis.interval_texts import interval_text
from tailrace.sql.analysis.tree import (
    AnyOrAll,
    Call,
    ColumnReference,
    Expression,
    InList,
    Logical,
    NullTest,
    Subquery,
    without_relabeling,
)
from tailrace.sql.analysis.types import INTEGERS
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.values import StoredValue, timestamp_text

_COMPARISONS = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons, and what they are with the operands exchanged."""
_VOLATILE = frozenset(("random", "clock_timestamp", "gen_random_uuid", "uuidv4", "uuidv7", "timeofday"))
_MAX_LISTED = 500
_PLAIN_TEXTS = frozenset(("text", "varchar"))
"""Types whose values are the same texts, compared in the same way."""


class PushedCondition(NamedTuple):
    """A condition for SQLite. Its parameters are stored forms of values that are computed once for each statement."""

    sql: str
    values: Sequence[tuple[Expression, Callable[[Any], StoredValue]]]


def pushed_conditions(where: Expression | None, table: Table, target: int) -> tuple[list[PushedCondition], bool]:
    """Return the conditions that SQLite can decide, and whether they are the whole WHERE."""
    if where is None:
        return [], True
    conditions = []
    is_whole = True
    for part in _parts(where):
        pushed = _pushed(part, table, target)
        if pushed is None:
            is_whole = False
        else:
            conditions.append(pushed)
    return conditions, is_whole


def _parts(where: Expression) -> Iterator[Expression]:
    if isinstance(where, Logical) and where.operator == "and":
        for part in where.arguments:
            yield from _parts(part)
    else:
        yield where


def _pushed(part: Expression, table: Table, target: int) -> PushedCondition | None:
    match part:
        case NullTest(argument=ColumnReference() as column) if column.relation == target:
            return PushedCondition(f"{quoted(column.column)} IS {'NOT ' if part.is_negated else ''}NULL", ())
        case ColumnReference() if part.relation == target and part.type.name == "bool":
            return PushedCondition(f"{quoted(part.column)} = 1", ())
        case Call() if part.signature.name in _COMPARISONS and len(part.arguments) == 2:
            return _comparison(part, table, target)
        case InList(is_negated=False):
            return _in_list(part, table, target)
        case AnyOrAll():
            return None
    return None


def _comparison(call: Call, table: Table, target: int) -> PushedCondition | None:
    found = _compared(call, table, target)
    if found is None:
        return None
    column, operator, value, store = found
    return PushedCondition(f"{quoted(column)} {operator} ?", [(value, store)])


def _in_list(node: InList, table: Table, target: int) -> PushedCondition | None:
    if len(node.comparisons) > _MAX_LISTED:
        return None
    found = [_compared(one, table, target) if isinstance(one, Call) else None for one in node.comparisons]
    known = [one for one in found if one is not None and one[1] == "="]
    if len(known) < len(found) or len({column for column, _, _, _ in known}) != 1:
        return None
    column = known[0][0]
    return PushedCondition(
        f"{quoted(column)} IN ({', '.join('?' * len(known))})", [(value, store) for _, _, value, store in known]
    )


def _compared(call: Call, table: Table, target: int) -> tuple[str, str, Expression, Callable[[Any], StoredValue]] | None:
    """Return the column, the operator, the value and how it is stored, if a call compares a column with a constant value."""
    left, right = map(without_relabeling, call.arguments)
    operator = call.signature.name
    if operator not in _COMPARISONS:
        return None
    if not isinstance(left, ColumnReference):
        left, right, operator = right, left, _COMPARISONS[operator]
    if not isinstance(left, ColumnReference) or left.relation != target or not _is_constant(right):
        return None
    names = {left.type.name, right.type.name}
    if len(names) > 1 and not (names <= INTEGERS or names <= _PLAIN_TEXTS):
        return None
    column = table.column(left.column)
    store = _STORED.get(column.type.kind) if column is not None else None
    if column is not None and column.type.kind == "enum" and operator != "=":
        # SQLite orders the labels as texts.
        return None
    return None if store is None else (left.column, operator, right, store)


def _is_constant(value: Expression) -> bool:
    """Return whether a value is the same for all rows of a statement."""
    return not any(
        isinstance(part, ColumnReference | Subquery) or (isinstance(part, Call) and part.signature.name in _VOLATILE)
        for part in value.walk()
    )


class UnorderedValueError(Exception):
    """SQLite would order a value otherwise: NaN, which PostgreSQL takes for larger than all numbers."""


def _double(value: float) -> float:
    if math.isnan(value):
        raise UnorderedValueError
    return value


def _same(value: Any) -> StoredValue:
    return value  # type: ignore[no-any-return]


_STORED: dict[str, Callable[[Any], StoredValue]] = {
    "boolean": int,
    "smallint": _same,
    "integer": _same,
    "bigint": _same,
    "double": _double,
    "decimal": lambda value: format(value, "f"),
    "text": _same,
    "bytes": _same,
    "date": lambda value: value.isoformat(),
    "timestamp": timestamp_text,
    "uuid": str,
    "real": _double,
    "enum": _same,
    "interval": interval_text,
    "time": lambda value: value.isoformat(timespec="microseconds"),
}
