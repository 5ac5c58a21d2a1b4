"""Quotas: how much of the server the users and clients may use that it names.

A quota is for a user, for the clients of a client id, or for both together. `DEFAULT` in place of a name is for all that have
no quota of their own.
"""

import math
import re
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from tailrace.model.errors import InvalidRequestError

QuotaKind = Literal["publish_bytes", "consume_bytes", "requests", "connections", "open_transactions", "sql_seconds"]
"""All are for each second, but `connections` and `open_transactions`, of which there may be so many at the same time."""

QUOTA_KINDS: tuple[QuotaKind, ...] = get_args(QuotaKind)
COUNTED_KINDS: frozenset[QuotaKind] = frozenset(("connections", "open_transactions"))
_LARGEST = float(1 << 53)

DEFAULT = "<default>"

_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_UNITS: Mapping[QuotaKind, Mapping[str, int]] = {
    "publish_bytes": _BYTES,
    "consume_bytes": _BYTES,
    "sql_seconds": {"s": 1, "min": 60},
}
_PERIODS = {"s": 1, "min": 60, "h": 3600}
_TEXT = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)\s*(?:/\s*([a-z]+))?\s*")


class QuotaEntity(msgspec.Struct, frozen=True):
    """Whom a quota is for. At least one of the names is given."""

    user: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        names = (("user", self.user), ("client id", self.client_id))
        return " and ".join(f"{kind} {name!r}" for kind, name in names if name is not None)


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    entity: QuotaEntity
    values: dict[QuotaKind, float]


def check_quota(kind: QuotaKind, value: float) -> None:
    """Raise `InvalidRequestError` unless there can be a quota of this size."""
    if not (math.isfinite(value) and 0 < value <= _LARGEST):
        raise InvalidRequestError(f"{kind} is {value:g}; a quota is greater than 0. Remove the quota to allow everything")
    if kind in COUNTED_KINDS and value != int(value):
        raise InvalidRequestError(f"{kind} is {value:g}; it must be a whole number")


def parse_quota(kind: QuotaKind, text: str) -> float:
    """Return the quota that a text says: `10 MB/s`, `100/s`, `6000/min`, `30 s/min`, `50`."""
    found = _TEXT.fullmatch(text)
    units, periods = _UNITS.get(kind, {}), {} if kind in COUNTED_KINDS else _PERIODS
    unit, period = (found[2].lower(), found[3] or "") if found else ("", "")
    if found is None or (unit and unit not in units) or (period and period not in periods):
        example = {"requests": "100/s", "sql_seconds": "30 s/min"}.get(kind, "50" if kind in COUNTED_KINDS else "10 MB/s")
        raise InvalidRequestError(f"{text[:64]!r} is no quota of {kind}; write it like {example!r}")
    value = float(found[1]) * units.get(unit, 1) / periods.get(period, 1)
    check_quota(kind, value)
    return value
