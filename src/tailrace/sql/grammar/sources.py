"""Statements about sources.

CREATE SOURCE [IF NOT EXISTS] name FROM POSTGRES 'url' [WITH (option = value, ...)] [DRY RUN]
ALTER SOURCE name SET (option = value, ...)
ALTER SOURCE name SNAPSHOT [TABLE schema.table, ...]
ALTER SOURCE name RESYNC
DROP SOURCE [IF EXISTS] name [CASCADE] [FORCE]

Options: tables, snapshot, password, password_env, password_file, publication, slot, captured_by.
"""

import re
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

from tailrace.model.source import CapturedBy, SnapshotMode
from tailrace.sql.grammar.passwords import PASSWORD_OPTIONS, password_fields, read_password
from tailrace.sql.grammar.token_reader import TokenReader
from tailrace.sql.statements import (
    AlterSourceStatement,
    CreateSourceStatement,
    DropSourceStatement,
    ResyncSourceStatement,
    SnapshotSourceStatement,
    Statement,
)
from tailrace.sql.text_positions import TextPosition

_SOURCE = "the name of a source"
_CHOICES: dict[str, tuple[str, ...]] = {"snapshot": get_args(SnapshotMode), "captured_by": get_args(CapturedBy)}
_TEXTS = ("publication", "slot")
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_PATTERN = re.compile(r'[^\s."\\]+\.[^\s."\\]+')


def create_source(reader: TokenReader, text: str) -> Statement:
    reader.expect("CREATE SOURCE")
    if_not_exists = reader.take("IF NOT EXISTS")
    name = reader.word(_SOURCE)
    reader.expect("FROM POSTGRES")
    url = reader.string("the URL of the database")
    if not reader.is_placeholder:
        _check_url(reader, url)
    options: dict[str, Any] = reader.options(_option) if reader.take("WITH") else {}
    is_dry_run = reader.take("DRY RUN")
    reader.expect_end("" if is_dry_run else "DRY RUN" if options else "WITH, DRY RUN")
    fields = password_fields(reader, options, "a source")
    return CreateSourceStatement(text=text, name=name, url=url, if_not_exists=if_not_exists, is_dry_run=is_dry_run, **fields)


def alter_source(reader: TokenReader, text: str) -> Statement:
    reader.expect("ALTER SOURCE")
    name = reader.word(_SOURCE)
    if reader.take("RESYNC"):
        reader.expect_end()
        return ResyncSourceStatement(text=text, name=name)
    if reader.take("SNAPSHOT"):
        return SnapshotSourceStatement(text=text, name=name, tables=_snapshot_tables(reader))
    reader.expect("SET")
    options: dict[str, Any] = reader.options(_altered_option)
    reader.expect_end()
    return AlterSourceStatement(text=text, name=name, **password_fields(reader, options, "a source"))


def _snapshot_tables(reader: TokenReader) -> tuple[str, ...]:
    if not reader.take("TABLE"):
        reader.expect_end("TABLE")
        return ()
    tables = [reader.name("the name of a table")]
    while reader.takes_comma():
        tables.append(reader.name("the name of a table"))
    reader.expect_end(",")
    return tuple(table if "." in table else f"public.{table}" for table in tables)


def drop_source(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP SOURCE")
    if_exists = reader.take("IF EXISTS")
    name = reader.word(_SOURCE)
    cascade = reader.take("CASCADE")
    force = reader.take("FORCE")
    reader.expect_end("" if force else "FORCE" if cascade else "CASCADE, FORCE")
    return DropSourceStatement(text=text, name=name, if_exists=if_exists, cascade=cascade, force=force)


def _check_url(reader: TokenReader, url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        reader.reject(f"the URL of the database can't be read ({error}); write it like 'postgresql://app@db/shop'")
    if parts.scheme not in ("postgresql", "postgres") or (not parts.path.strip("/") and "dbname" not in parse_qs(parts.query)):
        reader.reject("the URL of the database must be like 'postgresql://app@db:5432/shop', with the name of the database")
    if parts.password is not None or "password" in parse_qs(parts.query):
        reader.reject(
            "the URL has a password, which would be stored in the log for all to read; leave it out, and name the environment"
            " variable or the file that holds it: WITH (password_env = 'SHOP_PASSWORD') or WITH (password_file = '...')"
        )
    if port == 0:
        reader.reject("the port of the database can't be 0")


def _altered_option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name == "url":
        url = reader.string("the URL of the database")
        if not reader.is_placeholder:
            _check_url(reader, url)
        return url
    if name not in ("tables", *PASSWORD_OPTIONS):
        reader.reject(f"option {name!r} of a source can't be altered; use url, tables, {', '.join(PASSWORD_OPTIONS)}", position)
    return _option(reader, name, position)


def _option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name == "tables":
        return _patterns(reader)
    if name in PASSWORD_OPTIONS:
        return read_password(reader, name)
    if name in _CHOICES:
        value = reader.string(name)
        if not reader.is_placeholder and value not in _CHOICES[name]:
            reader.reject(f"option {name!r} can't be {value!r}; it must be {' or '.join(map(repr, _CHOICES[name]))}")
        return value
    if name in _TEXTS:
        value = reader.string(name)
        if name == "slot" and not reader.is_placeholder and not _SLOT.fullmatch(value):
            reader.reject(f"{value!r} can't be the name of a slot; use up to 63 small letters, digits and underscores")
        return value
    known = ", ".join(("tables", *_CHOICES, *PASSWORD_OPTIONS, *_TEXTS))
    reader.reject(f"sources have no option {name!r}; use one of {known}", position)


def _patterns(reader: TokenReader) -> tuple[str, ...]:
    """Read a list such as `public.orders, audit.*`."""
    value = reader.string("the tables")
    if reader.is_placeholder:
        return ()
    patterns = tuple(pattern.strip() for pattern in value.split(","))
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            reader.reject(f"{pattern!r} names no tables; write schema.table or schema.*, separated by commas")
    return patterns
