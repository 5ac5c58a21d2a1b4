"""The SQL functions that our dialect needs and SQLite lacks or means otherwise.

Their names begin with `tr_` where only the translation calls them. What they refuse becomes the error of the statement.
"""

import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from uuid import UUID

import apsw

from tailrace.model.errors import SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.tables.column_values import stored
from tailrace.sql.tables.decimals import register_decimals
from tailrace.sql.tables.moments import register_moments
from tailrace.sql.tables.patterns import is_like
from tailrace.sql.tables.values import Stored, Unfit, codec_of, shown, store_date, store_timestamp

ColumnsOf = Mapping[tuple[str, str], Column]
"""By the names of table and column."""


def register_functions(
    connection: apsw.Connection, columns: ColumnsOf, types: Mapping[str, ColumnType], now_ms: Callable[[], int]
) -> None:
    """Give the connection all functions. `columns` and `types` are looked into at each call, so they may grow."""
    register_decimals(connection)
    register_moments(connection)

    def store(value: Stored, table: str, column: str) -> Stored:
        return stored(value, columns[table, column])

    def cast(value: Stored, type_name: str) -> Stored:
        if value is None:
            return None
        type_ = types[type_name]
        try:
            return codec_of(type_).store(_to_text(value) if type_.kind == "text" else value)
        except Unfit as why:
            raise SqlError(f"{shown(value)} can't be cast to {type_name}: {why}") from None

    def now() -> str:
        return store_timestamp(datetime.fromtimestamp(now_ms() / 1000, UTC))

    def today() -> str:
        return store_date(datetime.fromtimestamp(now_ms() / 1000, UTC))

    def scalar(name: str, function: Callable[..., Stored], arguments: int, *, deterministic: bool = True) -> None:
        connection.create_scalar_function(name, function, arguments, deterministic=deterministic)

    scalar("tr_store", store, 3)
    scalar("tr_cast", cast, 2)
    scalar("tr_now", now, 0, deterministic=False)
    scalar("tr_today", today, 0, deterministic=False)
    scalar("tr_uuid4", _random_uuid, 0, deterministic=False)
    scalar("tr_random", random.SystemRandom().random, 0, deterministic=False)
    scalar("tr_like", _like, 3)
    scalar("tr_ilike", _ilike, 3)
    scalar("upper", _upper, 1)
    scalar("lower", _lower, 1)
    scalar("decode", _decode, 2)
    scalar("encode", _encode, 2)


def _to_text(value: Stored) -> Stored:
    return value if isinstance(value, str) else value.decode() if isinstance(value, bytes) else str(value)


def _random_uuid() -> str:
    return str(UUID(int=random.SystemRandom().getrandbits(128), version=4))


def _like(value: Stored, pattern: Stored, escape: str) -> Stored:
    return None if value is None or pattern is None else is_like(str(value), str(pattern), escape)


def _ilike(value: Stored, pattern: Stored, escape: str) -> Stored:
    return None if value is None or pattern is None else is_like(str(value).lower(), str(pattern).lower(), escape.lower())


def _upper(value: Stored) -> Stored:
    return None if value is None else str(value).upper()


def _lower(value: Stored) -> Stored:
    return None if value is None else str(value).lower()


def _decode(value: Stored, how: str) -> Stored:
    if value is None:
        return None
    try:
        if how == "base64":
            return b64decode(str(value), validate=True)
        if how == "hex":
            return bytes.fromhex(str(value))
    except ValueError:
        raise SqlError(f"{shown(value)} is not {how}") from None
    raise SqlError(f"decode knows 'base64' and 'hex', not {shown(how)}")


def _encode(value: Stored, how: str) -> Stored:
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode()
    if how == "base64":
        return b64encode(data).decode()
    if how == "hex":
        return data.hex()
    raise SqlError(f"encode knows 'base64' and 'hex', not {shown(how)}")
