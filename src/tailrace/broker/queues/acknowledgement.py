"""Receipts: the text by which a consumer speaks of one delivery. To it the text means nothing; it names the record and a token
that no other delivery has, so an old one is told from the one in force.
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
    partition: PartitionId
    offset: Offset
    token: int


def write_receipt(partition: PartitionId, offset: Offset, token: int) -> str:
    return urlsafe_b64encode(_RECEIPT.pack(*partition, offset, token)).decode()


def read_receipt(text: str) -> DeliveryReceipt:
    try:
        topic_id, number, offset, token = _RECEIPT.unpack(urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, StructError):
        raise InvalidRequestError(f"{text[:64]!r} is no receipt; send those that receive gave you, as they are") from None
    return DeliveryReceipt(PartitionId(TopicId(topic_id), number), Offset(offset), token)


class ReceiptOutcome(IntEnum):
    OPEN = 0
    """Nothing was said yet, or it is not remembered."""
    ACKNOWLEDGED = 1
    RELEASED = 2


class ReceiptOutcomes:
    def __init__(self, first_token: int, remembered: int) -> None:
        self._first = self._next = first_token
        self._fates = bytearray(remembered)

    def new_token(self) -> int:
        """A token that no delivery had before. What was remembered in its place is forgotten."""
        token = self._next
        self._next += 1
        self._fates[token % len(self._fates)] = ReceiptOutcome.OPEN
        return token

    def __getitem__(self, token: int) -> ReceiptOutcome:
        return ReceiptOutcome(self._fates[token % len(self._fates)]) if self._remembers(token) else ReceiptOutcome.OPEN

    def __setitem__(self, token: int, fate: ReceiptOutcome) -> None:
        if self._remembers(token):
            self._fates[token % len(self._fates)] = fate

    def _remembers(self, token: int) -> bool:
        return max(self._first, self._next - len(self._fates)) <= token < self._next


Write = asyncio.Future[None]
ApplyReceipt = Callable[[Queue, Share, OpenRecord], "Write | None"]
"""Does to a record what its receipt says; done when the write is, or at once."""


class Acknowledgements:
    def __init__(self, registry: QueueRegistry, fates: ReceiptOutcomes, limits: Limits, now_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._fates = fates
        self._limits = limits
        self._now_ms = now_ms
        self._pending: dict[int, Write] = {}
        """By token: what was said and is not durable yet."""
        self.refused = 0
        """Receipts that did not count."""

    async def settle(self, group: str, receipts: Sequence[str], fate: ReceiptOutcome, settle: ApplyReceipt) -> SettleResult:
        """Answered when all that counts is durable. Raises if nothing does, or if a write fails."""
        check_receipts(receipts, self._limits)
        queue = self._registry.get(group)
        read = [read_receipt(text) for text in receipts]
        refused: list[RejectedReceipt] = []
        writes: dict[Write, list[str]] = {}
        new: dict[Write, list[int]] = {}
        for text, receipt in zip(receipts, read, strict=True):
            token = receipt.token
            if fate is not ReceiptOutcome.OPEN and self._fates[token] is fate:
                write = self._pending.get(token)
            else:
                try:
                    share, record = self._held(queue, receipt)
                except LateReceiptError as error:
                    refused.append(RejectedReceipt(text, str(error), _is_done(queue, receipt)))
                    continue
                write = settle(queue, share, record)
                self._fates[token] = fate
                if write is not None:
                    self._pending[token] = write
                    new.setdefault(write, []).append(token)
            if write is not None:
                writes.setdefault(write, []).append(text)
        for write, tokens in new.items():
            write.add_done_callback(partial(self._ended, tokens))
        refused += await self._durable(writes)
        self.refused += len(refused)
        if len(refused) == len(receipts):
            raise LateReceiptError(_summary(refused), refused)
        return SettleResult(len(receipts) - len(refused), refused)

    def _held(self, queue: Queue, receipt: DeliveryReceipt) -> tuple[Share, OpenRecord]:
        share = queue.shares.get(receipt.partition)
        if share is None:
            raise LateReceiptError("the topic of this record was deleted, or the receipt is of another group")
        return share, share.state.held(receipt.offset, receipt.token, self._now_ms())

    async def _durable(self, writes: "dict[Write, list[str]]") -> list[RejectedReceipt]:
        """Receipts whose topics or queues were deleted meanwhile."""
        refused: list[RejectedReceipt] = []
        # Shielded, because others wait for the same writes.
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
                self._fates[token] = ReceiptOutcome.OPEN


def _is_done(queue: Queue, receipt: DeliveryReceipt) -> bool:
    share = queue.shares.get(receipt.partition)
    return share is not None and share.state.is_done(receipt.offset)


def _summary(refused: Sequence[RejectedReceipt]) -> str:
    first = refused[0].detail
    return first if len(refused) == 1 else f"none of the {len(refused)} receipts counts; the first: {first}"


def check_receipts(receipts: Sequence[str], limits: Limits) -> None:
    if not 1 <= len(receipts) <= limits.queue_batch:
        raise LimitExceededError(f"{len(receipts)} receipts were sent; queue_batch allows 1 to {limits.queue_batch}")
    if len(set(receipts)) != len(receipts):
        raise InvalidRequestError("a receipt was sent twice in one request; send each once")
