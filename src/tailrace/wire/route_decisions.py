"""Decisions: what Spark's real-time query sends for each change it has evaluated the routes on.

A decision is a record of the topic `_router.decisions`, which only the router's query writes to and nobody reads: the server
makes the records of topics from it. The key names the query (the epoch of its lease, and the version of the routes that it
knows), the value is JSON:

    {"c": 812, "r": [3, -7], "k": {"3": "[5]"}}

`c` is the cursor of the change, `r` the routes that match it, or that can't be evaluated for it if the number is negative, and
`k` the keys of records whose routes define them. A change that no route takes has a decision too: the mark moves over it.
"""

import re
from collections.abc import Sequence

import msgspec

from tailrace.model.errors import InvalidRecordsError
from tailrace.model.record import Record

DECISIONS_TOPIC = "_router.decisions"

_QUERY = re.compile(rb"(\d{1,18}):(-?\d{1,18})")


class RouteDecision(msgspec.Struct, frozen=True, rename={"cursor": "c", "routes": "r", "keys": "k"}):
    cursor: int
    routes: tuple[int, ...] = ()
    keys: dict[str, str] = {}


class QueryDecisions(msgspec.Struct, frozen=True):
    """Consecutive decisions of one query."""

    epoch: int
    version: int
    """The cursor of the last change of routes that the query knows; -1 if there was none."""
    decisions: Sequence[RouteDecision]


_decode = msgspec.json.Decoder(RouteDecision).decode


def query_key(epoch: int, version: int) -> str:
    """Return the key of the decisions of a query."""
    return f"{epoch}:{version}"


def read_decisions(records: Sequence[Record]) -> QueryDecisions:
    """Read the decisions of a batch, which are all of one query and in the order of the changes."""
    found = _QUERY.fullmatch(records[0].key or b"") if records else None
    if found is None or any(record.key != records[0].key for record in records):
        raise InvalidRecordsError(f"only the router writes to {DECISIONS_TOPIC!r}: the keys don't name one query of a router")
    try:
        decisions = [_decode(record.value or b"") for record in records]
    except msgspec.MsgspecError as error:
        raise InvalidRecordsError(f"a record of {DECISIONS_TOPIC!r} is not a decision: {error}") from error
    return QueryDecisions(int(found[1]), int(found[2]), decisions)
