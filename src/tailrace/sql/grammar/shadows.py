"""Statements about shadows.

CREATE SHADOW [IF NOT EXISTS] name TO|FROM KAFKA 'host:port, ...' WITH (topics = 'pattern, ...' [, option = value]...) [DRY RUN]
ALTER SHADOW name SET (option = value, ...)
ALTER SHADOW name PAUSE | RESUME | SKIP LOST
DROP SHADOW [IF EXISTS] name [FORCE]

Options: topics, groups, user, password, password_env, password_file, throttle, copied_by, and settings of librdkafka.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from tailrace.model.address import parse_address
from tailrace.model.errors import ConfigurationError, InvalidPatternError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern
from tailrace.model.shadow import CONNECTION_SETTINGS, CopiedBy
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.grammar.passwords import PASSWORD_OPTIONS, password_fields, read_password
from tailrace.sql.grammar.token_reader import TokenReader
from tailrace.sql.statements import (
    AlterShadowStatement,
    CreateShadowStatement,
    DropShadowStatement,
    PauseShadowStatement,
    SkipLostStatement,
    Statement,
)
from tailrace.sql.text_positions import TextPosition

_SHADOW = "the name of a shadow"
_OPTIONS = ("topics", "groups", "user", *PASSWORD_OPTIONS, "throttle", "copied_by")
_ALTERED = ("bootstrap", *(option for option in _OPTIONS if option != "copied_by"))
_SECRETS = re.compile(r"password|secret|\.pem$|\.token|sasl\.oauthbearer\.config|keystore|jaas")
_SIZE = re.compile(r"\s*(\d{1,12})\s*([KMG]i?)?B(?:/s)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_LEAST_THROTTLE = 1_000
_GROUP_LENGTH = DEFAULT_LIMITS.group_name_length


def create_shadow(reader: TokenReader, text: str) -> Statement:
    reader.expect("CREATE SHADOW")
    if_not_exists = reader.take("IF NOT EXISTS")
    name = reader.word(_SHADOW)
    direction = reader.one_of("TO KAFKA", "FROM KAFKA").partition(" ")[0].lower()
    bootstrap = _bootstrap(reader)
    position = reader.position
    options = reader.options(_option) if reader.take("WITH") else {}
    if "topics" not in options:
        reader.reject("a shadow needs the topics that it copies: WITH (topics = 'app.>')", position)
    is_dry_run = reader.take("DRY RUN")
    reader.expect_end("" if is_dry_run else "DRY RUN")
    return CreateShadowStatement(
        text=text,
        name=name,
        direction=direction,  # type: ignore[arg-type]
        bootstrap=bootstrap,
        if_not_exists=if_not_exists,
        is_dry_run=is_dry_run,
        **_fields(reader, options),
    )


def alter_shadow(reader: TokenReader, text: str) -> Statement:
    reader.expect("ALTER SHADOW")
    name = reader.word(_SHADOW)
    action = reader.one_of("SET", "PAUSE", "RESUME", "SKIP LOST")
    if action == "SET":
        options = reader.options(_altered_option)
        reader.expect_end()
        return AlterShadowStatement(text=text, name=name, changes=_fields(reader, options))
    reader.expect_end()
    if action == "SKIP LOST":
        return SkipLostStatement(text=text, name=name)
    return PauseShadowStatement(text=text, name=name, is_paused=action == "PAUSE")


def drop_shadow(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP SHADOW")
    if_exists = reader.take("IF EXISTS")
    name = reader.word(_SHADOW)
    force = reader.take("FORCE")
    reader.expect_end("" if force else "FORCE")
    return DropShadowStatement(text=text, name=name, if_exists=if_exists, force=force)


def _fields(reader: TokenReader, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a shadow that the options set."""
    settings = {name: value for name, value in options.items() if "." in name}
    rest = {name: value for name, value in options.items() if "." not in name}
    if "throttle" in rest:
        rest["throttle_bytes"] = rest.pop("throttle")
    fields = password_fields(reader, rest, "a shadow")
    return fields | {"settings": settings} if settings else fields


def _altered_option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name == "bootstrap":
        return _bootstrap(reader)
    if name not in _ALTERED and name in _OPTIONS:
        reader.reject(f"option {name!r} of a shadow can't be altered; use one of {', '.join(_ALTERED)}", position)
    return _option(reader, name, position)


def _option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name == "topics":
        return _list(reader, "the topics", _check_topics)
    if name == "groups":
        return _list(reader, "the groups", _check_group)
    if name in PASSWORD_OPTIONS:
        return read_password(reader, name)
    if name == "throttle":
        return _throttle(reader)
    if name == "copied_by":
        value = reader.string(name)
        if not reader.is_placeholder and value not in get_args(CopiedBy):
            reader.reject(f"option 'copied_by' can't be {value!r}; it must be {' or '.join(map(repr, get_args(CopiedBy)))}")
        return value
    if name == "user":
        return reader.string(name)
    if "." in name:
        return _setting(reader, name, position)
    reader.reject(
        f"shadows have no option {name!r}{did_you_mean(name, _OPTIONS)}; use one of {', '.join(_OPTIONS)}, or a setting of"
        " connections such as security.protocol",
        position,
    )


def _setting(reader: TokenReader, name: str, position: TextPosition) -> str:
    if name == "sasl.username":
        reader.reject("the name of the user has an option of its own: user = '...'", position)
    if _SECRETS.search(name):
        reader.reject(
            f"{name!r} would be stored for all to read; use user = '...' and password = ENV('NAME') or FILE('/path')", position
        )
    if name not in CONNECTION_SETTINGS:
        reader.reject(
            f"shadows have no setting {name!r}{did_you_mean(name, CONNECTION_SETTINGS)}; use one of"
            f" {', '.join(CONNECTION_SETTINGS)}",
            position,
        )
    value = reader.value(name, str)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        reader.reject(f"the setting {name!r} must have a value")
    return str(value)


def _bootstrap(reader: TokenReader) -> str:
    """Read `kafka-1:9092, kafka-2:9092`, and return it without blanks."""
    value = reader.string("the addresses of Kafka")
    if reader.is_placeholder:
        return value
    addresses = [address.strip() for address in value.split(",")]
    for address in addresses:
        try:
            parse_address(address)
        except ConfigurationError as error:
            reader.reject(f"the addresses of Kafka must be like 'kafka-1:9092,kafka-2:9092': {error}")
    return ",".join(addresses)


def _list(reader: TokenReader, what: str, check: Callable[[TokenReader, str], None]) -> tuple[str, ...]:
    """Read `app.>, orders.paid`."""
    value = reader.string(what)
    if reader.is_placeholder:
        return ("placeholder",)
    parts = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    for part in parts:
        check(reader, part)
    return parts


def _check_topics(reader: TokenReader, pattern: str) -> None:
    try:
        parse_pattern(pattern, DEFAULT_LIMITS)
    except InvalidPatternError as error:
        reader.reject(str(error))


def _check_group(reader: TokenReader, pattern: str) -> None:
    if not 0 < len(pattern.encode(errors="replace")) <= _GROUP_LENGTH:
        reader.reject(f"{pattern[:32]!r} is no pattern of groups; write names, with '*' for any characters")


def _throttle(reader: TokenReader) -> int | None:
    """Read bytes in a second: `'10 MB'`, `'512 KiB/s'`, a number, or NULL for none."""
    value = reader.value("throttle", str)
    if reader.is_placeholder or value is None:
        return None
    size = 0
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        size = int(found[1]) * _UNITS[(found[2] or "").lower()] if found is not None else 0
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    if size < _LEAST_THROTTLE:
        reader.reject(
            f"throttle is {value!r}; it must be bytes in a second, at least {_LEAST_THROTTLE}: '10 MB' or 10000000, or NULL"
        )
    return size
