"""Schemas of `GET /health`, and of the errors of every endpoint."""

from typing import Literal

import msgspec


class Health(msgspec.Struct, omit_defaults=True):
    status: Literal["ok", "full", "failed"]
    """`full`: the disk is full, so records are rejected and everything else works."""
    version: str
    durability: str
    uptime_seconds: float
    end_cursor: int
    """The cursor that the next record of the log will get."""
    kafka: str = ""
    """The address that Kafka clients use."""
    failure: str = ""
    tables: str = ""
    """Why tables can't be used: changes in the log are not applied yet, or their file is being rebuilt."""


class Problem(msgspec.Struct):
    """An error as problem+json (RFC 9457). Some errors have more members, such as the bounds of a partition."""

    type: str
    title: str
    status: int
    detail: str
    retriable: bool
    outcome: Literal["failed", "unknown"]
