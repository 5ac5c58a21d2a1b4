"""Acknowledgement: applies what consumers report by receipt: a record is done, is released, or is kept for longer.

A receipt counts once, for the first outcome that is reported with it. Reporting the same outcome again is no error, because
the response to the first request may have been lost: it gets the same answer and changes nothing. A request that failed in
part may therefore be sent again as a whole.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from tailrace.broker.queues.registry import Queue, QueueRegistry
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import OpenRecord
from tailrace.model.errors import InvalidRequestError, LateReceiptError, LimitExceededError, UnknownGroupError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.queue import RejectedReceipt, SettleResult

_RECEIPT = Struct(">IIqQ")


class DeliveryReceipt(NamedTuple):
    """Names a record and one delivery of it. Consumers get it as an opaque text."""

    partition: PartitionId
    offset: Offset
    token: int
    """Unique among all deliveries, so that an old receipt of a record differs from the one that counts."""


def write_receipt(partition: PartitionId, offset: Offset, token: int) -> str:
    return urlsafe_b64encode(_RECEIPT.pack(*partition, offset, token)).decode()


def read_receipt(text: str) -> DeliveryReceipt:
    try:
        topic_id, number, offset, token = _RECEIPT.unpack(urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, StructError):
        raise InvalidRequestError(f"{text[:64]!r} is not a receipt; send receipts as receive returned them") from None
    return DeliveryReceipt(PartitionId(TopicId(topic_id), number), Offset(offset), token)


class ReceiptOutcome(IntEnum):
    OPEN = 0
    """Nothing was reported yet, or it is not remembered."""
    ACKNOWLEDGED = 1
    RELEASED = 2


class ReceiptOutcomes:
    """Remembers the outcomes of the latest deliveries by the tokens of their receipts, one byte each.

    Nothing is remembered over a restart: the store knows which records are done, not which receipts counted.
    """

    def __init__(self, first_token: int, remembered: int) -> None:
        self._first = self._next = first_token
        self._outcomes = bytearray(remembered)

    def new_token(self) -> int:
        """Return a token that no delivery had before. It replaces the oldest one that is remembered."""
        token = self._next
        self._next += 1
        self._outcomes[token % len(self._outcomes)] = ReceiptOutcome.OPEN
        return token

    def __getitem__(self, token: int) -> ReceiptOutcome:
        if not self._remembers(token):
            return ReceiptOutcome.OPEN
        return ReceiptOutcome(self._outcomes[token % len(self._outcomes)])

    def __setitem__(self, token: int, outcome: ReceiptOutcome) -> None:
        if self._remembers(token):
            self._outcomes[token % len(self._outcomes)] = outcome

    def _remembers(self, token: int) -> bool:
        return max(self._first, self._next - len(self._outcomes)) <= token < self._next


Write = asyncio.Future[None]
ApplyReceipt = Callable[[Queue, Share, OpenRecord], "Write | None"]
"""Applies a receipt to its record. Returns the write that makes it durable, or `None` if none is waited for."""


class Acknowledgements:
    def __init__(self, registry: QueueRegistry, outcomes: ReceiptOutcomes, limits: Limits, now_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._outcomes = outcomes
        self._limits = limits
        self._now_ms = now_ms
        self._pending: dict[int, Write] = {}
        """By token: the writes of outcomes that are not durable yet."""
        self.refused = 0
        """Receipts that did not count."""

    async def apply(self, group: str, receipts: Sequence[str], outcome: ReceiptOutcome, apply: ApplyReceipt) -> SettleResult:
        """Apply receipts and return when the result is durable. Raises if none of them counts, or if a write fails."""
        _check_receipts(receipts, self._limits)
        queue = self._registry.get(group)
        read = [read_receipt(text) for text in receipts]
        refused: list[RejectedReceipt] = []
        writes: dict[Write, list[str]] = {}
        new: dict[Write, list[int]] = {}
        for text, receipt in zip(receipts, read, strict=True):
            token = receipt.token
            if outcome is not ReceiptOutcome.OPEN and self._outcomes[token] is outcome:
                write = self._pending.get(token)
            else:
                try:
                    share, record = self._find(queue, receipt)
                except LateReceiptError as error:
                    refused.append(RejectedReceipt(text, str(error), _is_done(queue, receipt)))
                    continue
                write = apply(queue, share, record)
                self._outcomes[token] = outcome
                if write is not None:
                    self._pending[token] = write
                    new.setdefault(write, []).append(token)
            if write is not None:
                writes.setdefault(write, []).append(text)
        for write, tokens in new.items():
            write.add_done_callback(partial(self._ended, tokens))
        refused += await self._await_writes(writes)
        self.refused += len(refused)
        if len(refused) == len(receipts):
            raise LateReceiptError(_summary(refused), refused)
        return SettleResult(len(receipts) - len(refused), refused)

    def _find(self, queue: Queue, receipt: DeliveryReceipt) -> tuple[Share, OpenRecord]:
        share = queue.shares.get(receipt.partition)
        if share is None:
            raise LateReceiptError("the topic of this record was deleted, or the receipt belongs to another group")
        return share, share.state.acquired_with(receipt.token, receipt.offset, self._now_ms())

    async def _await_writes(self, writes: "dict[Write, list[str]]") -> list[RejectedReceipt]:
        """Wait for the writes. Return the receipts whose topics or queues were deleted meanwhile."""
        refused: list[RejectedReceipt] = []
        # Shielded, because other requests wait for the same writes.
        failures = await asyncio.shield(asyncio.gather(*writes, return_exceptions=True)) if writes else []
        for failure, texts in zip(failures, writes.values(), strict=True):
            if isinstance(failure, UnknownGroupError):
                refused += [RejectedReceipt(text, str(failure)) for text in texts]
            elif failure is not None:
                raise failure
        return refused

    def _ended(self, tokens: Sequence[int], write: Write) -> None:
        has_failed = write.cancelled() or write.exception() is not None
        for token in tokens:
            self._pending.pop(token, None)
            if has_failed:
                self._outcomes[token] = ReceiptOutcome.OPEN


def _is_done(queue: Queue, receipt: DeliveryReceipt) -> bool:
    share = queue.shares.get(receipt.partition)
    return share is not None and share.state.is_done(receipt.offset)


def _summary(refused: Sequence[RejectedReceipt]) -> str:
    first = refused[0].detail
    return first if len(refused) == 1 else f"none of the {len(refused)} receipts counts; the first: {first}"


def _check_receipts(receipts: Sequence[str], limits: Limits) -> None:
    if not 1 <= len(receipts) <= limits.queue_batch:
        raise LimitExceededError(f"{len(receipts)} receipts were sent; queue_batch allows 1 to {limits.queue_batch}")
    if len(set(receipts)) != len(receipts):
        raise InvalidRequestError("a receipt was sent twice in one request; send each once")
