"""Transactions as values: who writes them, what state they are in, and what readers must skip."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from tailrace.model.ids import Offset, ProducerId

NO_EPOCH = -1


class TransactionState(StrEnum):
    """By Kafka's names. A transaction ends in one frame, so none is ever seen half ended."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


class ProducerIdentity(NamedTuple):
    """A producer id in one of its epochs. A newer epoch fences all older ones."""

    producer_id: ProducerId
    epoch: int


class AbortedTransaction(NamedTuple):
    """Records of this producer from this offset on are to be skipped, up to the producer's next marker."""

    producer_id: ProducerId
    first_offset: Offset


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: TransactionState


class TransactionDescription(NamedTuple):
    transactional_id: str
    producer: ProducerIdentity
    state: TransactionState
    timeout_ms: int
    started_ms: int
    """-1 unless the transaction is open."""
    partitions: Sequence[tuple[str, int]]
    """Topic and partition."""


class ProducerDescription(NamedTuple):
    """A producer as one partition knows it."""

    producer: ProducerIdentity
    last_sequence: int
    last_timestamp: int
    transaction_start: Offset
    """The first offset of its open transaction; -1 if there is none."""
