"""Faults of transactions: what was aborted is shown, or only a part of what was committed."""

from itertools import count
from typing import Any

from tailrace.broker.isolation import AbortedTransactions
from tailrace.broker.transactions.ending import TransactionEnder
from tailrace.broker.transactions.state import TransactionMetadata
from tailrace.model.ids import Offset, PartitionId

_EVERY = 5


def serve_aborted() -> None:
    """Readers of committed records are not told which transactions were aborted."""
    AbortedTransactions.between = lambda self, partition, start, end: []  # type: ignore[method-assign]


def tear() -> None:
    """Now and then a transaction is committed in all of its partitions but one."""
    mark = TransactionEnder._mark
    numbers = count(1)

    def careless(
        self: TransactionEnder,
        draft: Any,
        partition: PartitionId,
        transaction: TransactionMetadata,
        marker: bytes,
        committed: bool,
    ) -> Offset | None:
        torn = len(transaction.partitions) > 1 and next(numbers) % _EVERY == 0
        return mark(self, draft, partition, transaction, marker, committed and not torn)

    TransactionEnder._mark = careless  # type: ignore[method-assign]
