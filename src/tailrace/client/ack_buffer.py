"""What the server and a consumer of a queue say to each other, as JSON."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tailrace.client.config import CorruptBatches, QueueConfig
from tailrace.client.values import EventMessage, QueueEvent, to_event
from tailrace.model.errors import LateReceiptError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS


class _QueueMessage(msgspec.Struct):
    receipt: str
    deliveries: int
    message: EventMessage


class _ReceiveResponse(msgspec.Struct):
    messages: list[_QueueMessage]


class RefusedReceipt(msgspec.Struct):
    """A receipt that did not count."""

    receipt: str
    detail: str
    is_done: bool = False
    """The record is done all the same."""


class AckResponse(msgspec.Struct):
    refused: list[RefusedReceipt]


_RECEIVE_RESPONSE = msgspec.json.Decoder(_ReceiveResponse)


class ReceiptCommand(NamedTuple):
    """What is said of records by their receipts."""

    path: str
    settings: tuple[tuple[str, int | str | bool], ...] = ()

    def body(self, receipts: Sequence[str]) -> bytes:
        return msgspec.json.encode({"receipts": receipts, **dict(self.settings)})


ACK = ReceiptCommand("ack")
RETURN_UNSEEN = ReceiptCommand("nack", (("unseen", True),))


def nack_command(delay_ms: int, reason: str) -> ReceiptCommand:
    return ReceiptCommand("nack", (("delay_ms", delay_ms), ("reason", reason)))


def extend_command(visibility_ms: int) -> ReceiptCommand:
    return ReceiptCommand("extend", (("visibility_ms", visibility_ms),))


def receive_request(config: QueueConfig, attempt: str, most: int, wait_ms: int) -> dict[str, object]:
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


def decode_received(answer: bytes) -> list[QueueEvent]:
    return [
        QueueEvent(to_event(each.message), each.receipt, each.deliveries) for each in _RECEIVE_RESPONSE.decode(answer).messages
    ]


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


T = TypeVar("T")

_MAX_PENDING_RECEIPTS = 20_000
MAX_RECEIPTS = DEFAULT_LIMITS.queue_batch
"""Receipts of one request."""


class PendingAck(NamedTuple, Generic[T]):
    """One call of the user's: what is said, by which receipts, and what waits for the outcome."""

    word: ReceiptCommand
    receipts: Sequence[str]
    outcome: T


class AckBuffer(Generic[T]):
    """Sayings in the order in which they came."""

    linger_seconds = 0.0

    def __init__(self) -> None:
        self._waiting: deque[PendingAck[T]] = deque()
        self._receipts = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, saying: PendingAck[T]) -> bool:
        """One saying always has, however many receipts it has."""
        return self._receipts + len(saying.receipts) <= _MAX_PENDING_RECEIPTS or not self._waiting

    def put(self, saying: PendingAck[T]) -> None:
        self._waiting.append(saying)
        self._receipts += len(saying.receipts)

    def take(self) -> list[PendingAck[T]]:
        """Those that go into the next request: of one word, and at least one of them."""
        taken: list[PendingAck[T]] = []
        receipts = 0
        while self._waiting:
            saying = self._waiting[0]
            receipts += len(saying.receipts)
            if taken and (saying.word != taken[0].word or receipts > MAX_RECEIPTS):
                break
            taken.append(self._waiting.popleft())
            self._receipts -= len(saying.receipts)
        return taken


def refusal_error(refused: Sequence[RefusedReceipt], unknown: TailraceError | None) -> TailraceError:
    """`unknown`: an answer was lost before. If a record is done, nobody can say then whether it was by this receipt."""
    if unknown is not None and any(each.is_done for each in refused):
        return unknown
    first = refused[0].detail
    told = first if len(refused) == 1 else f"{len(refused)} receipts do not count; the first: {first}"
    return LateReceiptError(told, refused)
