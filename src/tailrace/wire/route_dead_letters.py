"""Dead letters of routes: what is written to `<topic>.dead_letters` for a change that can't become a record of its topic.

The pipeline's tasks write them, and the server for decisions of the real-time mode (`wire/route_decisions.py`).
"""

import msgspec

from tailrace.model.limits import KIB, MIB, Limits
from tailrace.wire.routing import ChangeEvent

MAX_LETTER_BYTES = 8 * MIB
"""The largest message of a topic of dead letters: enough for a change with both its rows, and its cause."""
BATCH_OVERHEAD_BYTES = KIB
"""More than the header of a batch, or the headers and lengths of a record, take in addition to key and value."""

NOT_EVALUATED = "the route can't be evaluated for this change: a value does not fit its type, or a division by zero"
TOO_LARGE = "the message would be larger than its topic allows"
VALUE_TOO_LARGE = "the value of the message would have more bytes than payload_bytes allows"
KEY_TOO_LARGE = "the key of the message would have more bytes than key_bytes allows"


class RouterDeadLetter(msgspec.Struct, frozen=True):
    cause: str
    route: int
    topic: str
    source_table: str
    event: "FailedEvent | None"
    """Left out if it does not fit into the topic. It is still among the table's changes, at the cursor in the headers."""

    def encoded(self, max_bytes: int) -> bytes:
        """Return the letter as JSON, for a topic whose messages have at most so many bytes."""
        whole = msgspec.json.encode(self)
        return whole if len(whole) < max_bytes - KIB else msgspec.json.encode(msgspec.structs.replace(self, event=None))


class FailedEvent(msgspec.Struct, frozen=True):
    op: str
    key: msgspec.Raw
    old: msgspec.Raw
    new: msgspec.Raw
    ts: int
    cursor: int


def failed_event(change: ChangeEvent) -> FailedEvent:
    null = b"null"
    return FailedEvent(
        change.op,
        msgspec.Raw(change.key),
        msgspec.Raw(change.old or null),
        msgspec.Raw(change.new or null),
        change.timestamp,
        change.cursor,
    )


def too_large(value_bytes: int, key_bytes: int, max_batch_bytes: int, limits: Limits) -> str | None:
    """Return why a record of these sizes can't be stored in a topic; `None` if it can."""
    if value_bytes + key_bytes > max_batch_bytes - 2 * BATCH_OVERHEAD_BYTES:
        return TOO_LARGE
    if value_bytes > limits.payload_bytes:
        return f"{VALUE_TOO_LARGE} ({limits.payload_bytes})"
    return f"{KEY_TOO_LARGE} ({limits.key_bytes})" if key_bytes > limits.key_bytes else None
