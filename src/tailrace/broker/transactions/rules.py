"""The rules of transactional ids: which producer may act for one, and which state may follow which.

Pure functions of `TransactionMetadata`: no I/O, no clock.
"""

from enum import Enum

import msgspec

from tailrace.broker.transactions.state import NOT_STARTED, TransactionMetadata
from tailrace.model.errors import (
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    LimitExceededError,
    ProducerMappingError,
    TransactionFencedError,
)
from tailrace.model.ids import ProducerId
from tailrace.model.limits import Limits
from tailrace.model.transaction import NO_EPOCH, ProducerIdentity, TransactionState

MAX_EPOCH = (1 << 15) - 1
_LAST_USED_EPOCH = MAX_EPOCH - 1
"""The last epoch is reserved for the markers that fence the one before it."""


class EndAction(Enum):
    """What a request to end a transaction has to do."""

    END = "end"
    NOTHING = "nothing"
    """The transaction has ended in this way already, and the response was lost."""


def check_timeout(timeout_ms: int, limits: Limits) -> None:
    if not 0 < timeout_ms <= limits.transaction_timeout_ms:
        raise InvalidTransactionTimeoutError(
            f"the transaction timeout is {timeout_ms} ms; it must be from 1 to transaction_timeout_ms"
            f" ({limits.transaction_timeout_ms})"
        )


def check_producer(
    transactional_id: str, transaction: TransactionMetadata | None, producer: ProducerIdentity
) -> TransactionMetadata:
    """Return the transaction if the producer may write in it."""
    found = check_mapping(transactional_id, transaction, producer)
    if producer.epoch != found.epoch:
        raise _fenced(transactional_id, found, producer)
    return found


def check_mapping(
    transactional_id: str, transaction: TransactionMetadata | None, producer: ProducerIdentity
) -> TransactionMetadata:
    """Return the transaction if the producer id belongs to the transactional id. The epoch is not checked."""
    if transaction is None or producer.producer_id not in (transaction.producer_id, transaction.previous_id):
        raise ProducerMappingError(
            f"producer id {producer.producer_id} does not belong to transactional id {transactional_id!r};"
            " initialize the producer again"
        )
    if producer.producer_id != transaction.producer_id and not _is_retry_of_end(transaction, producer):
        raise _fenced(transactional_id, transaction, producer)
    return transaction


def is_repeated_init(transactional_id: str, transaction: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Return whether the producer was given the next epoch it asks for already, and only missed the response."""
    if expected.producer_id == transaction.producer_id:
        if expected.epoch == transaction.epoch:
            return False
        if expected.epoch == transaction.last_epoch != NO_EPOCH and not transaction.is_open:
            return True
    elif expected.producer_id == transaction.previous_id and expected.epoch >= _LAST_USED_EPOCH:
        return True
    raise _fenced(transactional_id, transaction, expected)


def check_ending(
    transactional_id: str, transaction: TransactionMetadata, producer: ProducerIdentity, *, committed: bool, bumps: bool
) -> EndAction:
    """Return what a request to end the transaction has to do. Raises if it may not be ended like this.

    With `bumps` the client gets a new epoch for its next transaction, which tells a repeated request from a new one.
    """
    is_retry = bumps and _is_retry_of_end(transaction, producer)
    if producer.epoch != transaction.epoch and not is_retry:
        raise _fenced(transactional_id, transaction, producer)
    if transaction.is_open:
        return EndAction.END
    wanted = TransactionState.COMMITTED if committed else TransactionState.ABORTED
    if transaction.state is wanted and (is_retry or not bumps):
        return EndAction.NOTHING
    if bumps and not committed and not is_retry:
        # A client that adds partitions by writing to them may abort before anything was written.
        return EndAction.END
    raise InvalidTransactionStateError(
        f"transactional id {transactional_id!r} can't {'commit' if committed else 'abort'}: no transaction is open, and the"
        f" state is {transaction.state}"
    )


def begin(transaction: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the transaction in the state of one that begins."""
    return msgspec.structs.replace(
        transaction,
        state=TransactionState.ONGOING,
        started_ms=now_ms,
        changed_ms=now_ms,
        partitions=(),
        groups=(),
        offsets=0,
    )


def close(transaction: TransactionMetadata, state: TransactionState, now_ms: int) -> TransactionMetadata:
    """Return the transaction in the state of one that has ended."""
    return msgspec.structs.replace(
        transaction, state=state, started_ms=NOT_STARTED, changed_ms=now_ms, partitions=(), groups=(), offsets=0
    )


def has_epochs_left(transaction: TransactionMetadata) -> bool:
    return transaction.epoch < _LAST_USED_EPOCH


def with_next_epoch(transaction: TransactionMetadata, *, last_epoch: int) -> TransactionMetadata:
    return msgspec.structs.replace(transaction, epoch=transaction.epoch + 1, last_epoch=last_epoch)


def with_new_id(transaction: TransactionMetadata, producer_id: ProducerId) -> TransactionMetadata:
    return msgspec.structs.replace(
        transaction, producer_id=producer_id, epoch=0, last_epoch=NO_EPOCH, previous_id=transaction.producer_id
    )


def check_size(transactional_id: str, transaction: TransactionMetadata, limits: Limits) -> None:
    size = len(transaction.partitions) + len(transaction.groups) + transaction.offsets
    if size > limits.transaction_partitions:
        raise LimitExceededError(
            f"the transaction of {transactional_id!r} would touch {size} partitions, groups and offsets, more than"
            f" transaction_partitions allows ({limits.transaction_partitions}); end it earlier"
        )


def _is_retry_of_end(transaction: TransactionMetadata, producer: ProducerIdentity) -> bool:
    """Return whether the producer has the epoch in which the last transaction ended, before the epoch was bumped."""
    if not transaction.bumps or transaction.is_open:
        return False
    if producer.producer_id == transaction.producer_id:
        return producer.epoch == transaction.epoch - 1
    return transaction.epoch == 0 and producer.epoch >= _LAST_USED_EPOCH


def _fenced(transactional_id: str, transaction: TransactionMetadata, producer: ProducerIdentity) -> TransactionFencedError:
    return TransactionFencedError(
        f"transactional id {transactional_id!r} has producer {transaction.producer_id} in epoch {transaction.epoch};"
        f" producer {producer.producer_id} in epoch {producer.epoch} has been fenced"
    )
