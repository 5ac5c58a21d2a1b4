"""Transactions and their producers: identities, states, descriptions, and what readers must skip."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from tailrace.model.ids import Offset, ProducerId

NO_EPOCH = -1


class TransactionState(StrEnum):
    """The states by Kafka's names. A transaction ends in one frame, so Kafka's states of one that is ending do not occur."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


class ProducerIdentity(NamedTuple):
    """A producer id in one of its epochs. A newer epoch fences all older ones."""

    producer_id: ProducerId
    epoch: int


class AbortedTransaction(NamedTuple):
    """Readers must skip the records of this producer from this offset on, up to the producer's next marker."""

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
    """When the open transaction began; -1 if there is none."""
    partitions: Sequence[tuple[str, int]]
    """Topic names with partition numbers."""


class ProducerDescription(NamedTuple):
    """The state of a producer in one partition."""

    producer: ProducerIdentity
    last_sequence: int
    last_timestamp: int
    transaction_start: Offset
    """The first offset of its open transaction, or -1 if there is none."""
