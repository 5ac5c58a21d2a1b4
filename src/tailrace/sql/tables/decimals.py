"""The order of decimal columns, which SQLite stores as text: the collation `tr_decimal` compares them as numbers."""

from decimal import Decimal

import apsw

COLLATION = "tr_decimal"


def register_decimals(connection: apsw.Connection) -> None:
    """Let a connection compare decimals. Every connection to tables needs it, because keys and indexes use it."""
    connection.create_collation(COLLATION, _compare)


def _compare(left: str, right: str) -> int:
    if left == right:
        return 0
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)
