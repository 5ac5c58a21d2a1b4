"""What the server and a consumer of a queue say to each other, as JSON."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tailrace.client.config import QueueConfig
from tailrace.client.event_messages import SentEvent, to_event
from tailrace.client.properties import CorruptBatches
from tailrace.client.values import QueueEvent


class _Delivered(msgspec.Struct):
    receipt: str
    deliveries: int
    message: SentEvent


class _Received(msgspec.Struct):
    messages: list[_Delivered]


class Refused(msgspec.Struct):
    """A receipt that did not count."""

    receipt: str
    detail: str
    is_done: bool = False
    """The record is done all the same."""


class Settled(msgspec.Struct):
    refused: list[Refused]


_RECEIVED = msgspec.json.Decoder(_Received)


class Word(NamedTuple):
    """What is said of records by their receipts."""

    path: str
    settings: tuple[tuple[str, int | str | bool], ...] = ()

    def body(self, receipts: Sequence[str]) -> bytes:
        return msgspec.json.encode({"receipts": receipts, **dict(self.settings)})


ACK = Word("ack")
UNSEEN = Word("nack", (("unseen", True),))


def nack(delay_ms: int, reason: str) -> Word:
    return Word("nack", (("delay_ms", delay_ms), ("reason", reason)))


def extend(visibility_ms: int) -> Word:
    return Word("extend", (("visibility_ms", visibility_ms),))


def receive_question(config: QueueConfig, attempt: str, most: int, wait_ms: int) -> dict[str, object]:
    question: dict[str, object] = {
        "pattern": config.pattern,
        "max": most,
        "wait_ms": wait_ms,
        "visibility_ms": milliseconds(config.visibility_timeout.total_seconds()),
        "order_by_key": config.order_by_key,
        "consumer": config.client_id,
        "attempt": attempt,
        "start": config.auto_offset_reset,
    }
    if config.corrupt_batches is CorruptBatches.SKIP:
        question["corrupt_batches"] = config.corrupt_batches
    if config.max_deliveries is not None:
        question["max_deliveries"] = config.max_deliveries
    return question


def read_received(answer: bytes) -> list[QueueEvent]:
    return [QueueEvent(to_event(each.message), each.receipt, each.deliveries) for each in _RECEIVED.decode(answer).messages]


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
