"""Where changes go that a route can't be followed for: `<topic>.dead_letters`, with the cause, the route and the change itself.

The topic is made when there is something to put into it.
"""

import msgspec

from tailrace.model.errors import InvalidTopicNameError
from tailrace.model.limits import DEFAULT_LIMITS, KIB, MIB
from tailrace.model.names import check_topic_name
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import RefusedError
from tailrace.wire.routing import ChangeEvent

SUFFIX = ".dead_letters"
OTHERWISE = "dead_letters"
"""For topics whose name is too long to have something put behind it."""

NOT_EVALUATED = "the route can't be evaluated for this change: a value does not fit its type, or a division by zero"
TOO_LARGE = "the message would be larger than its topic takes"

_MOST_BYTES = 8 * MIB
"""A change with both its rows, and what is said about it."""


class Letter(msgspec.Struct, frozen=True):
    cause: str
    route: int
    topic: str
    source_table: str
    event: "LostEvent | None"
    """Left out where it does not fit into the topic. It is still among the table's changes, at the cursor in the headers."""


class LostEvent(msgspec.Struct, frozen=True):
    op: str
    key: msgspec.Raw
    old: msgspec.Raw
    new: msgspec.Raw
    ts: int
    cursor: int


class DeadLetters:
    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._most: dict[str, int] = {}
        """By topic of dead letters, the bytes that it takes."""

    def topic_for(self, topic: str) -> str:
        """The topic for what can't go to this one. It is there afterwards."""
        name = name_for(topic)
        if name not in self._most:
            self._most[name] = self._made(name)
        return name

    def write(self, letter: Letter) -> bytes:
        whole = msgspec.json.encode(letter)
        if len(whole) < self._most[self.topic_for(letter.topic)] - KIB:
            return whole
        return msgspec.json.encode(msgspec.structs.replace(letter, event=None))

    def _made(self, name: str) -> int:
        try:
            return self._connection.offsets([name]).max_batch_bytes[name]
        except RefusedError as error:
            if error.kind != "unknown-topic":
                raise
        settings = {"max_message_bytes": _MOST_BYTES}
        self._connection.ask("POST", "/api/topics", {"name": name, "partitions": 1, "settings": settings})
        return _MOST_BYTES


def name_for(topic: str) -> str:
    try:
        check_topic_name(topic + SUFFIX, DEFAULT_LIMITS)
    except InvalidTopicNameError:
        return OTHERWISE
    return topic + SUFFIX


def lost_event(change: ChangeEvent) -> LostEvent:
    null = b"null"
    return LostEvent(
        change.op,
        msgspec.Raw(change.key),
        msgspec.Raw(change.old or null),
        msgspec.Raw(change.new or null),
        change.timestamp,
        change.cursor,
    )
