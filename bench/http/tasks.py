"""What a client process is asked to do over HTTP: values that travel as lines of JSON. Answers are those of `bench.kafka`."""

from typing import Literal

import msgspec

from bench.kafka.tasks import Delays, Done, Span
from bench.worker_process import Failed

Form = Literal["parameters", "text"]
"""How the values of an INSERT are sent: beside the statement, or written in it."""


class InsertRows(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Rows `id, body` with rising ids, over some connections, each with one request on its way. Answered with a `Span`."""

    table: str
    first_id: int
    rows: int
    rows_a_request: int
    body_bytes: int
    connections: int
    form: Form = "parameters"


class InsertSteadily(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Rows `id, sent` at an even pace; `sent` is the time at which the request leaves. Answered with a `Span`."""

    table: str
    rows: int
    per_second: int


class PublishMessages(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Numbered messages, like `InsertRows`."""

    topic: str
    first: int
    messages: int
    messages_a_request: int
    body_bytes: int
    connections: int


class PublishSteadily(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One by one at an even pace, each with the time at which it leaves. Answered with `Delays` until each was acknowledged."""

    topic: str
    messages: int
    per_second: int


class ConsumeMessages(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Everything from the start, each request where the one before ended. The numbers are checked. Answered with a `Span`."""

    topic: str
    messages: int
    messages_a_request: int


class ConsumeSteadily(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Messages that say when they left, by long polls. Answered with `Done` when it is ready, and with `Delays`."""

    topic: str
    messages: int


class Subscribe(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """So many subscribers, of which each must get all messages in order, once.

    Answered with `Done` when all are connected, and with `Delays` of all events at all subscribers.
    """

    pattern: str
    subscribers: int
    messages: int


AnyTask = InsertRows | InsertSteadily | PublishMessages | PublishSteadily | ConsumeMessages | ConsumeSteadily | Subscribe
Answer = Done | Span | Delays | Failed
