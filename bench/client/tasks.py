"""What a process with the SDK is asked to do, and what it answers: values that travel as lines of JSON."""

from collections.abc import Sequence

import msgspec

from bench.answers import Failed


class Publish(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Numbered messages of so many bytes, to topics in turn."""

    topics: Sequence[str]
    messages: int
    message_bytes: int


class Consume(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Everything from the start, by polls; each record is marked. The numbers are checked."""

    topic: str
    messages: int
    polled: int


class Follow(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """So many events of a pattern, after a cursor. The numbers are checked."""

    pattern: str
    after: int
    messages: int


class Acknowledge(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """So many events of a queue by polls, each acknowledged by itself. The numbers are checked."""

    topic: str
    group: str
    messages: int
    polled: int


class Worked(msgspec.Struct, frozen=True, tag=True):
    """How long it took by the clock, and what this process used of the CPU for it."""

    seconds: float
    cpu_seconds: float
    cursor: int = -1
    """Of the last message that was published."""


AnyTask = Publish | Consume | Follow | Acknowledge
Answer = Worked | Failed
