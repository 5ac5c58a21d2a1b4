"""Schemas of `GET /health`, of logins, and of the errors of every endpoint."""

from typing import Literal

import msgspec


class Health(msgspec.Struct, omit_defaults=True):
    status: Literal["ok", "full", "failed"]
    """`full`: the disk is full, so records are rejected and everything else works."""
    version: str = ""
    """This and all below is only there for who has logged in, where that is demanded."""
    durability: str = ""
    uptime_seconds: float = -1.0
    end_cursor: int = -1
    """The cursor that the next record of the log will get."""
    kafka: str = ""
    """The address that Kafka clients use."""
    failure: str = ""
    tables: str = ""
    """Why tables can't be used: changes in the log are not applied yet, or their file is being rebuilt."""


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    password: str


class WhoAmI(msgspec.Struct):
    authentication: Literal["off", "required"]
    name: str | None = None
    """The name of the user, of the certificate or of the token; none if authentication is off."""
    roles: list[str] = []
    """All its roles, also those that it has through others."""


class Problem(msgspec.Struct):
    """An error as problem+json (RFC 9457). Some errors have more members, such as the bounds of a partition."""

    type: str
    title: str
    status: int
    detail: str
    retriable: bool
    outcome: Literal["failed", "unknown"]
