"""The stored state of transactions, as values and as bytes.

There are three kinds of keys. One per transactional id holds everything but the offsets; one per group holds the offsets to be
committed with the transaction (`groups/pending_offsets.py`); one per partition and producer says that a transaction is
open there, which is what an append looks at.
"""

from struct import Struct
from typing import NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Draft
from tailrace.model.ids import Offset, PartitionId, ProducerId
from tailrace.model.transaction import NO_EPOCH, ProducerIdentity, TransactionState

NOT_STARTED = -1
NO_RECORDS = Offset(-1)
NO_PREVIOUS_ID = ProducerId(-1)

_OPEN = Struct(">hq")


class TransactionMetadata(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A transactional id: its producer, and its open or else its last transaction."""

    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    started_ms: int = NOT_STARTED
    changed_ms: int
    bumps: bool = False
    """Whether the last transaction ended with a new epoch, as newer clients ask for (KIP-890)."""
    last_epoch: int = NO_EPOCH
    """The epoch before the present one, if the client itself asked for the change and may repeat the request."""
    previous_id: ProducerId = NO_PREVIOUS_ID
    """The producer id before this one, which ran out of epochs."""
    partitions: tuple[tuple[int, int], ...] = ()
    groups: tuple[str, ...] = ()
    offsets: int = 0
    """The number of offsets to be committed, in all groups."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def is_open(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def deadline_ms(self) -> int:
        return self.started_ms + self.timeout_ms


class OpenTransaction(NamedTuple):
    """A producer's open transaction in one partition."""

    epoch: int
    first_offset: Offset
    """`NO_RECORDS` as long as the partition was added and nothing was written to it."""


_decode_transaction = msgspec.msgpack.Decoder(TransactionMetadata).decode


def read_transaction(value: bytes) -> TransactionMetadata:
    return _decode_transaction(value)


def put_transaction(draft: Draft, transactional_id: str, transaction: TransactionMetadata) -> None:
    draft.put(keys.transaction_key(transactional_id), msgspec.msgpack.encode(transaction))


def read_open(value: bytes) -> OpenTransaction:
    return OpenTransaction._make(_OPEN.unpack(value))


def put_open(draft: Draft, partition: PartitionId, producer: ProducerIdentity, first_offset: Offset) -> None:
    draft.put(keys.open_transaction_key(partition, producer.producer_id), _OPEN.pack(producer.epoch, first_offset))
