"""The SQL functions that our dialect needs and SQLite lacks or means otherwise.

Their names begin with `tr_` where only the translation calls them. What they refuse becomes the error of the statement.
"""

import random
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import apsw

from tailrace.model.errors import SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.tables.decimals import register_decimals
from tailrace.sql.tables.timestamps import register_timestamps
from tailrace.sql.tables.values import InvalidValueError, StoredValue, codec_of, shown, store_date, store_timestamp, stored

ColumnsOf = Mapping[tuple[str, str], Column]
"""By the names of table and column."""


def register_functions(
    connection: apsw.Connection, columns: ColumnsOf, types: Mapping[str, ColumnType], now_ms: Callable[[], int]
) -> None:
    """Give the connection all functions. `columns` and `types` are looked into at each call, so they may grow."""
    register_decimals(connection)
    register_timestamps(connection)

    def store(value: StoredValue, table: str, column: str) -> StoredValue:
        return stored(value, columns[table, column])

    def cast(value: StoredValue, type_name: str) -> StoredValue:
        if value is None:
            return None
        type_ = types[type_name]
        try:
            return codec_of(type_).store(_to_text(value) if type_.kind == "text" else value)
        except InvalidValueError as why:
            raise SqlError(f"{shown(value)} can't be cast to {type_name}: {why}") from None

    def now() -> str:
        return store_timestamp(datetime.fromtimestamp(now_ms() / 1000, UTC))

    def today() -> str:
        return store_date(datetime.fromtimestamp(now_ms() / 1000, UTC))

    def scalar(name: str, function: Callable[..., StoredValue], arguments: int, *, deterministic: bool = True) -> None:
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


def _to_text(value: StoredValue) -> StoredValue:
    return value if isinstance(value, str) else value.decode() if isinstance(value, bytes) else str(value)


def _random_uuid() -> str:
    return str(UUID(int=random.SystemRandom().getrandbits(128), version=4))


def _like(value: StoredValue, pattern: StoredValue, escape: str) -> StoredValue:
    return None if value is None or pattern is None else is_like(str(value), str(pattern), escape)


def _ilike(value: StoredValue, pattern: StoredValue, escape: str) -> StoredValue:
    return None if value is None or pattern is None else is_like(str(value).lower(), str(pattern).lower(), escape.lower())


def _upper(value: StoredValue) -> StoredValue:
    return None if value is None else str(value).upper()


def _lower(value: StoredValue) -> StoredValue:
    return None if value is None else str(value).lower()


def _decode(value: StoredValue, how: str) -> StoredValue:
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


def _encode(value: StoredValue, how: str) -> StoredValue:
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode()
    if how == "base64":
        return b64encode(data).decode()
    if how == "hex":
        return data.hex()
    raise SqlError(f"encode knows 'base64' and 'hex', not {shown(how)}")


_SPECIAL = "*?["
_STEPS_AT_A_STRETCH = 1_000_000
_MOST_STEPS = 1_000_000_000
"""Characters of a text times those of a piece of the pattern: a few seconds."""


def glob_of_like(pattern: str, escape: str) -> str:
    parts = []
    for character, is_wild in _characters(pattern, escape):
        if is_wild:
            parts.append("*" if character == "%" else "?")
        else:
            parts.append(f"[{character}]" if character in _SPECIAL else character)
    return "".join(parts)


def is_like(text: str, pattern: str, escape: str) -> bool:
    """Each piece between two `%` is taken where it is found first: if that does not lead to a match, nothing does."""
    pieces: list[list[str]] = [[]]
    for character, is_wild in _characters(pattern, escape):
        if is_wild and character == "%":
            pieces.append([])
        else:
            pieces[-1].append("." if is_wild else re.escape(character))
    if len(text) * max(map(len, pieces)) > _MOST_STEPS:
        raise SqlError(f"a pattern of {len(pattern)} characters is too long for a text of {len(text)}")
    first, *others = (_PatternPart(re.compile("".join(piece), re.DOTALL), len(piece)) for piece in pieces)
    if not others:
        return first.expression.fullmatch(text) is not None
    if first.expression.match(text) is None:
        return False
    at = first.width
    for piece in others[:-1]:
        found = _end_of_first(piece, text, at)
        if found is None:
            return False
        at = found
    start = len(text) - others[-1].width
    return start >= at and others[-1].expression.fullmatch(text, start) is not None


class _PatternPart(NamedTuple):
    """What stands between two `%`, which is always of the same length."""

    expression: re.Pattern[str]
    width: int


def _end_of_first(piece: _PatternPart, text: str, at: int) -> int | None:
    """Searched in parts, because a search does not let go of the interpreter."""
    stride = max(1, _STEPS_AT_A_STRETCH // max(1, piece.width))
    for start in range(at, len(text) - piece.width + 1, stride):
        found = piece.expression.search(text, start, start + stride + piece.width - 1)
        if found is not None:
            return found.end()
    return None


def _characters(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Each character that the pattern asks for, and whether it is a wild card."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character:
                raise SqlError(f"the pattern {pattern!r} ends with its escape character; double it")
            yield character, False
        else:
            yield character, character in "%_"
