"""What consumers of queues send: requests for events, and acks, nacks and extensions that wait to be sent."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tailrace.api.queues import AckReceiptsBody, ExtendReceiptsBody, NackReceiptsBody, ReceiveBody, ReceiveResponse
from tailrace.client.config import QueueConfig
from tailrace.client.values import QueueEvent, to_event
from tailrace.model.errors import LateReceiptError, TailraceError
from tailrace.model.fetch import StartEdge
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.queue import RejectedReceipt

T = TypeVar("T")

MAX_RECEIPTS = DEFAULT_LIMITS.queue_batch
"""Limits the receipts of one request."""
_MAX_PENDING_RECEIPTS = 20_000
_RECEIVE_RESPONSE = msgspec.json.Decoder(ReceiveResponse)


class ReceiptCommand(NamedTuple):
    """Something to do with records, which are identified by their receipts."""

    path: str
    template: AckReceiptsBody | NackReceiptsBody | ExtendReceiptsBody
    """The body of the request, without receipts."""

    def encode(self, receipts: Sequence[str]) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self.template, receipts=list(receipts)))


ACK = ReceiptCommand("ack", AckReceiptsBody([]))
RETURN_UNSEEN = ReceiptCommand("nack", NackReceiptsBody([], unseen=True))


def nack_command(delay_ms: int, reason: str) -> ReceiptCommand:
    return ReceiptCommand("nack", NackReceiptsBody([], delay_ms, reason))


def extend_command(visibility_ms: int) -> ReceiptCommand:
    return ReceiptCommand("extend", ExtendReceiptsBody([], visibility_ms))


class PendingAck(NamedTuple, Generic[T]):
    """One call of the user: what to do, with which receipts, and what waits for the outcome."""

    command: ReceiptCommand
    receipts: Sequence[str]
    outcome: T


class AckBuffer(Generic[T]):
    """Holds pending acks in order, up to a bound, and takes them out a request at a time."""

    linger_seconds = 0.0

    def __init__(self) -> None:
        self._pending: deque[PendingAck[T]] = deque()
        self._receipts = 0

    def __len__(self) -> int:
        return len(self._pending)

    def has_room(self, ack: PendingAck[T]) -> bool:
        """Return whether it may be added. An empty buffer has room for one of any size."""
        return self._receipts + len(ack.receipts) <= _MAX_PENDING_RECEIPTS or not self._pending

    def put(self, ack: PendingAck[T]) -> None:
        self._pending.append(ack)
        self._receipts += len(ack.receipts)

    def take(self) -> list[PendingAck[T]]:
        """Take those that fit into the next request: at least one if there is one, all with the same command."""
        taken: list[PendingAck[T]] = []
        receipts = 0
        while self._pending:
            ack = self._pending[0]
            receipts += len(ack.receipts)
            if taken and (ack.command != taken[0].command or receipts > MAX_RECEIPTS):
                break
            taken.append(self._pending.popleft())
            self._receipts -= len(ack.receipts)
        return taken


def refusal_error(refused: Sequence[RejectedReceipt], unknown: TailraceError | None) -> TailraceError:
    """Return the error for refused receipts. `unknown` is that of an earlier attempt whose response was lost.

    If a record is done and a response was lost, nobody can tell whether this receipt did it.
    """
    if unknown is not None and any(each.is_done for each in refused):
        return unknown
    first = refused[0].detail
    message = first if len(refused) == 1 else f"{len(refused)} receipts were refused; the first: {first}"
    return LateReceiptError(message, refused)


def receive_body(config: QueueConfig, attempt: str, max_records: int, wait_ms: int) -> ReceiveBody:
    return ReceiveBody(
        config.pattern,
        max=max_records,
        wait_ms=wait_ms,
        visibility_ms=to_milliseconds(config.visibility_timeout.total_seconds()),
        order_by_key=config.order_by_key,
        consumer=config.client_id,
        attempt=attempt,
        max_deliveries=config.max_deliveries,
        start=StartEdge(config.auto_offset_reset),
        corrupt_batches=config.corrupt_batches.value,
    )


def decode_received(response: bytes) -> list[QueueEvent]:
    delivered = _RECEIVE_RESPONSE.decode(response).messages
    return [QueueEvent(to_event(each.message), each.receipt, each.deliveries) for each in delivered]


def to_milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
