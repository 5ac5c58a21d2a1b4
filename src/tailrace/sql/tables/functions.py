"""The SQL functions that the dialect needs and that SQLite lacks or defines differently, and LIKE.

Names start with `tr_` if only the translation calls the function. An error of a function becomes the error of the statement.

LIKE in SQLite ignores case. It is translated to GLOB, which does not, or computed here if the pattern is not a constant. Both
take time proportional to text and pattern at most, whatever the pattern.
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
"""Columns by the names of table and column."""


_SPECIAL = "*?["
_STEPS_AT_ONCE = 1_000_000
_MAX_STEPS = 1_000_000_000
"""Characters of a text times those of a part of the pattern; this many take a few seconds."""


def register_functions(
    connection: apsw.Connection, columns: ColumnsOf, types: Mapping[str, ColumnType], now_ms: Callable[[], int]
) -> None:
    """Register all functions on a connection. `columns` and `types` are read at each call, so they may grow."""
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
    raise SqlError(f"decode does not know the format {shown(how)}; use 'base64' or 'hex'")


def _encode(value: StoredValue, how: str) -> StoredValue:
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode()
    if how == "base64":
        return b64encode(data).decode()
    if how == "hex":
        return data.hex()
    raise SqlError(f"encode does not know the format {shown(how)}; use 'base64' or 'hex'")


def glob_of_like(pattern: str, escape: str) -> str:
    """Return the GLOB pattern of a LIKE pattern."""
    parts = []
    for character, is_wild in _characters(pattern, escape):
        if is_wild:
            parts.append("*" if character == "%" else "?")
        else:
            parts.append(f"[{character}]" if character in _SPECIAL else character)
    return "".join(parts)


def is_like(text: str, pattern: str, escape: str) -> bool:
    """Return whether a text matches a LIKE pattern.

    Each part between two `%` is matched where it occurs first: if that does not lead to a match, nothing does.
    """
    pattern_parts: list[list[str]] = [[]]
    for character, is_wild in _characters(pattern, escape):
        if is_wild and character == "%":
            pattern_parts.append([])
        else:
            pattern_parts[-1].append("." if is_wild else re.escape(character))
    if len(text) * max(map(len, pattern_parts)) > _MAX_STEPS:
        raise SqlError(
            f"a LIKE pattern of {len(pattern)} characters is too long for a text of {len(text)} characters; use a shorter"
            " pattern"
        )
    first, *others = (_PatternPart(re.compile("".join(part), re.DOTALL), len(part)) for part in pattern_parts)
    if not others:
        return first.expression.fullmatch(text) is not None
    if first.expression.match(text) is None:
        return False
    at = first.width
    for part in others[:-1]:
        found = _end_of_first(part, text, at)
        if found is None:
            return False
        at = found
    start = len(text) - others[-1].width
    return start >= at and others[-1].expression.fullmatch(text, start) is not None


class _PatternPart(NamedTuple):
    """The part of a pattern between two `%`, which always matches the same number of characters."""

    expression: re.Pattern[str]
    width: int


def _end_of_first(part: _PatternPart, text: str, at: int) -> int | None:
    """Return the end of the first match. The text is searched in parts, because a search holds the interpreter's lock."""
    stride = max(1, _STEPS_AT_ONCE // max(1, part.width))
    for start in range(at, len(text) - part.width + 1, stride):
        found = part.expression.search(text, start, start + stride + part.width - 1)
        if found is not None:
            return found.end()
    return None


def _characters(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Yield each character of the pattern, and whether it is a wildcard."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character:
                raise SqlError(f"the LIKE pattern {pattern!r} ends with its escape character; double it")
            yield character, False
        else:
            yield character, character in "%_"
