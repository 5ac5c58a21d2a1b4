"""The tasks of a client process over HTTP, as lines of JSON. Answers are those of `bench.kafka.tasks`."""

from typing import Literal

import msgspec

from bench.kafka.tasks import Delays, Done, Span
from bench.worker_process import Failed

Form = Literal["parameters", "text"]
"""How the values of an INSERT are sent: as parameters, or as literals."""


class InsertRows(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Insert rows `id, body` with rising ids over some connections, one request at a time on each. Answered with a `Span`."""

    table: str
    first_id: int
    rows: int
    rows_a_request: int
    body_bytes: int
    connections: int
    form: Form = "parameters"


class InsertSteadily(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Insert rows `id, sent` at a steady rate; `sent` is when the request is sent. Answered with a `Span`."""

    table: str
    rows: int
    per_second: int


class PublishMessages(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Publish numbered messages, like `InsertRows`."""

    topic: str
    first: int
    messages: int
    messages_a_request: int
    body_bytes: int
    connections: int


class PublishSteadily(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Publish one by one at a steady rate, each with the time at which it is sent. Answered with `Delays` until the acks."""

    topic: str
    messages: int
    per_second: int


class ConsumeMessages(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Consume everything from the start. The numbers are checked. Answered with a `Span`."""

    topic: str
    messages: int
    messages_a_request: int


class ConsumeSteadily(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Consume messages that say when they were sent, by long polls. Answered with `Done` when ready, and with `Delays`."""

    topic: str
    messages: int


class Subscribe(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Run subscribers, each of which must get all messages in order, once.

    Answered with `Done` when all are connected, and with `Delays` of all events at all subscribers.
    """

    pattern: str
    subscribers: int
    messages: int


AnyTask = InsertRows | InsertSteadily | PublishMessages | PublishSteadily | ConsumeMessages | ConsumeSteadily | Subscribe
Answer = Done | Span | Delays | Failed
