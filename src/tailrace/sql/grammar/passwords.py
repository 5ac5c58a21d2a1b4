"""How statements name a password: by where it is found, because a statement is stored and shown.

password = ENV('SHOP_PASSWORD')
password = FILE('/run/secrets/shop')
password_env = 'SHOP_PASSWORD'
password_file = '/run/secrets/shop'
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tailrace.sql.grammar.token_reader import TokenReader

PASSWORD_OPTIONS = ("password", "password_env", "password_file")
_KINDS = {"ENV": "password_env", "FILE": "password_file"}


class PasswordPlace(NamedTuple):
    option: str
    """`password_env` or `password_file`."""
    where: str


def read_password(reader: TokenReader, option: str) -> PasswordPlace:
    """Read the value of one of the options of a password."""
    if option != "password":
        return PasswordPlace(option, reader.string(option))
    for kind, meant in _KINDS.items():
        if reader.take(kind):
            reader.expect_open()
            place = PasswordPlace(meant, reader.string(f"the name of the {'variable' if kind == 'ENV' else 'file'}"))
            reader.expect_sign(")")
            return place
    reader.reject(
        "a password in a statement would be stored for all to read. Name the environment variable or the file that holds it:"
        " password = ENV('NAME') or password = FILE('/path')",
        reader.position,
    )


def password_fields(reader: TokenReader, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the options with `password_env` or `password_file` instead of a `PasswordPlace`; `what` has the password."""
    fields = {name: value for name, value in options.items() if name not in PASSWORD_OPTIONS}
    places = [options[name] for name in PASSWORD_OPTIONS if name in options]
    if len(places) > 1:
        reader.reject(f"{what} has one password; set it once")
    return fields | {place.option: place.where for place in places}
