"""What a program authenticates with at a server: a name and a password, a token, or a certificate; and whom it trusts there.

It comes from the settings of the connection, else from the address (`https://alice:secret@server`), else from the environment.
Secrets are in no `repr` and no message of an error.
"""

import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from tailrace.client.config import ConnectionConfig
from tailrace.client.http11 import checked_url, tls_context
from tailrace.model.errors import ConfigurationError
from tailrace.model.server_credentials import CERTIFICATE_VARIABLE, TOKEN_VARIABLE

USER = "TAILRACE_USER"
PASSWORD = "TAILRACE_PASSWORD"  # noqa: S105  the name of a variable
PASSWORD_FILE = "TAILRACE_PASSWORD_FILE"  # noqa: S105
TOKEN = TOKEN_VARIABLE
TOKEN_FILE = "TAILRACE_TOKEN_FILE"  # noqa: S105
CA_FILE = "TAILRACE_CA_FILE"
CERTIFICATE_FILE = "TAILRACE_CERTIFICATE_FILE"
KEY_FILE = "TAILRACE_KEY_FILE"

_MAX_SECRET_BYTES = 16_384

C = TypeVar("C", bound=ConnectionConfig)


class CredentialSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process finds what it authenticates with: names of variables and files, and never a secret itself.

    So it may be sent to other processes, written down and shown. What it does not name comes from the environment.
    """

    user: str | None = None
    password_env: str | None = None
    """The environment variable with the password of the user."""
    password_file: str | None = None
    """The file with the password of the user."""
    token_env: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    """For an `https://` server: the PEM file of the trusted authorities."""
    certificate_file: str | None = None
    """The PEM file with a client certificate."""
    key_file: str | None = None

    def settings(self) -> dict[str, Any]:
        """Read the secrets, and return the settings of `ConnectionConfig` that this names."""
        _check_one(self.password_env, self.password_file, "the password")
        _check_one(self.token_env, self.token_file, "the token")
        found = {
            "user": self.user,
            "password": _from_variable(self.password_env) or _from_file(self.password_file),
            "token": _from_variable(self.token_env) or _from_file(self.token_file),
            "ca_file": self.ca_file,
            "certificate_file": self.certificate_file,
            "key_file": self.key_file,
        }
        return {name: value for name, value in found.items() if value is not None}


NO_CREDENTIALS = CredentialSource()
"""Names nothing, so that everything comes from the environment."""


class ServerAccess:
    """How one server is reached: its address without a password, what proves who asks, and whom to trust."""

    def __init__(self, url: str, config: ConnectionConfig, environment: Mapping[str, str] = os.environ) -> None:
        self.url, from_url = split_url(url)
        self.user: str | None = None
        self.password: str | None = None
        self.token: str | None = None
        self._read(config, from_url, environment)
        # A process that the server has started trusts the certificate that it was given.
        from_environment = None if CERTIFICATE_VARIABLE in environment else environment.get(CA_FILE)
        self.ca_file = config.ca_file or from_environment or None
        self.certificate_file = config.certificate_file or environment.get(CERTIFICATE_FILE) or None
        self.key_file = config.key_file or environment.get(KEY_FILE) or None

    def __repr__(self) -> str:
        return f"ServerAccess({self.url!r}, user={self.user!r})"

    @property
    def authorization(self) -> str | None:
        """The header `Authorization`, if there is a password or a token."""
        if self.token is not None:
            return f"Bearer {self.token}"
        if self.user is not None:
            return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return None

    @property
    def headers(self) -> dict[str, str]:
        authorization = self.authorization
        return {} if authorization is None else {"authorization": authorization}

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how TLS is spoken with the server; `None` for an address without it."""
        return tls_context(self.url, self.ca_file, self.certificate_file, self.key_file)

    def _read(self, config: ConnectionConfig, from_url: tuple[str, str] | None, environment: Mapping[str, str]) -> None:
        if config.token is not None:
            if config.user is not None or config.password is not None:
                raise ConfigurationError("a token and a user with a password are both given; leave one out")
            self.token = _checked_token(config.token)
        elif config.user is not None or config.password is not None:
            self._take_user(config.user or environment.get(USER), config.password or _password_in(environment))
        elif from_url is not None:
            self.user, self.password = from_url
        elif environment.get(TOKEN) or environment.get(TOKEN_FILE):
            self.token = _checked_token(environment.get(TOKEN) or _from_file(environment[TOKEN_FILE]) or "")
        elif environment.get(USER):
            self._take_user(environment[USER], _password_in(environment))

    def _take_user(self, user: str | None, password: str | None) -> None:
        if not user:
            raise ConfigurationError(f"there is a password and no user; give user, or set {USER}")
        if password is None:
            raise ConfigurationError(
                f"there is no password for user {user!r}; give password, or set {PASSWORD} or {PASSWORD_FILE}"
            )
        if ":" in user:
            raise ConfigurationError(f"user is {user!r}; allowed is a name without ':'")
        self.user, self.password = user, password


def split_url(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return the checked address without what it says of a user, and that: a name and a password."""
    checked = checked_url(url)
    parts = urlsplit(checked)
    userinfo, at, address = parts.netloc.rpartition("@")
    if not at:
        return checked, None
    name, _, password = userinfo.partition(":")
    return parts._replace(netloc=address).geturl(), (unquote(name), unquote(password))


def with_defaults(config: C, defaults: ConnectionConfig) -> C:
    """Return a config with the credentials and files of another one, where it has none of its own."""
    has_own = config.user is not None or config.password is not None or config.token is not None
    names = ["ca_file", "certificate_file", "key_file", *(() if has_own else ("user", "password", "token"))]
    missing = {name: getattr(defaults, name) for name in names if getattr(config, name) is None}
    return msgspec.structs.replace(config, **missing)


def _password_in(environment: Mapping[str, str]) -> str | None:
    return environment.get(PASSWORD) or _from_file(environment.get(PASSWORD_FILE))


def _from_variable(name: str | None) -> str | None:
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(
            f"the environment variable {name} is not set in this process; it is to have a password or token"
        )
    return value


def _from_file(name: str | None) -> str | None:
    """Return the first line of a file."""
    if not name:
        return None
    try:
        with Path(name).open(encoding="utf-8") as file:
            line = file.readline(_MAX_SECRET_BYTES).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"can't read the password or token in the file {name}: {why}") from None
    if not line:
        raise ConfigurationError(f"the file {name} is to have a password or token in its first line, which is empty")
    return line


def _checked_token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token has characters that no token has; it may have been cut off or pasted in parts")
    return token


def _check_one(variable: str | None, file: str | None, what: str) -> None:
    if variable is not None and file is not None:
        raise ConfigurationError(f"a variable and a file with {what} are both named; leave one out")
