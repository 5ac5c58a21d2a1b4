"""The order of columns that SQLite stores as text and that are compared as numbers or intervals."""

from collections.abc import Callable
from decimal import Decimal

import apsw

from tailrace.model.table import ColumnKind
from tailrace.sql.analysis.interval_texts import read_interval
from tailrace.sql.evaluation.comparisons import interval_key
from tailrace.sql.functions.numerics import compare

COLLATIONS: dict[ColumnKind, str] = {"decimal": "tr_decimal", "interval": "tr_interval"}
"""The names by which definitions of columns refer to them."""


def register_collations(connection: apsw.Connection) -> None:
    """Let a connection compare these columns. Every connection to tables needs it, because keys and indexes use it."""
    for kind, order in _ORDERS.items():
        connection.create_collation(COLLATIONS[kind], order)


def _compare_decimals(left: str, right: str) -> int:
    if left == right:
        return 0
    return compare(Decimal(left), Decimal(right))


def _compare_intervals(left: str, right: str) -> int:
    if left == right:
        return 0
    a, b = interval_key(read_interval(left)), interval_key(read_interval(right))
    return (a > b) - (a < b)


_ORDERS: dict[ColumnKind, Callable[[str, str], int]] = {"decimal": _compare_decimals, "interval": _compare_intervals}
