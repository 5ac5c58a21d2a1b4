"""The registry of transactional ids and open transactions in memory, and the expiry of idle ids.

The registry changes only when a commit is durable. Until then a new id or a new transaction reserves its place in the limits.
"""

from collections.abc import Callable, Sequence

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.transactions.state import TransactionMetadata, read_transaction
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError
from tailrace.model.ids import ProducerId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store, range_pages


class TransactionRegistry:
    def __init__(self, limits: Limits, hold: Callable[[], Callable[[], None]]) -> None:
        """`hold` counts a transaction of the principal of the request until what it returns is called, or raises."""
        self._limits = limits
        self._hold = hold
        self._releases: dict[str, Callable[[], None]] = {}
        self._owners: dict[ProducerId, str] = {}
        self._ids: dict[str, ProducerId] = {}
        self._new_ids: set[str] = set()
        self._deadlines: dict[str, int] = {}
        self._beginning: set[str] = set()

    @property
    def ids(self) -> int:
        return len(self._ids)

    @property
    def open(self) -> int:
        return len(self._deadlines)

    def owner_of(self, producer_id: int) -> str | None:
        """Return the transactional id that the producer id belongs to."""
        return self._owners.get(ProducerId(producer_id))

    def reserve_id(self, transactional_id: str) -> None:
        """Reserve a place for a new transactional id, until `enter` or `cancel_id` is called."""
        if transactional_id in self._new_ids:
            return
        count = len(self._ids) + len(self._new_ids)
        if count >= self._limits.transactional_ids:
            raise LimitExceededError(
                f"there are {count} transactional ids, as many as transactional_ids allows; use fewer,"
                " or wait until idle ones expire"
            )
        self._new_ids.add(transactional_id)

    def cancel_id(self, transactional_id: str) -> None:
        self._new_ids.discard(transactional_id)

    def enter(self, transactional_id: str, producer_id: ProducerId) -> None:
        """Add the id, or change its producer id."""
        self._new_ids.discard(transactional_id)
        before = self._ids.get(transactional_id)
        if before is not None:
            del self._owners[before]
        self._ids[transactional_id] = producer_id
        self._owners[producer_id] = transactional_id

    def remove(self, transactional_id: str) -> None:
        producer_id = self._ids.pop(transactional_id, None)
        if producer_id is not None:
            del self._owners[producer_id]

    def reserve_transaction(self, transactional_id: str) -> None:
        """Reserve a place for one more open transaction, until `began` or `cancel_transaction` is called."""
        if transactional_id in self._beginning:
            return
        count = len(self._deadlines) + len(self._beginning)
        if count >= self._limits.open_transactions:
            raise LimitExceededError(
                f"there are {count} open transactions, as many as open_transactions allows; try again when one has ended"
            )
        self._release(transactional_id)
        self._releases[transactional_id] = self._hold()
        self._beginning.add(transactional_id)

    def cancel_transaction(self, transactional_id: str) -> None:
        self._beginning.discard(transactional_id)
        self._release(transactional_id)

    def began(self, transactional_id: str, transaction: TransactionMetadata) -> None:
        self._beginning.discard(transactional_id)
        self._deadlines[transactional_id] = transaction.deadline_ms

    def ended(self, transactional_id: str) -> None:
        self._deadlines.pop(transactional_id, None)
        self._release(transactional_id)

    def _release(self, transactional_id: str) -> None:
        release = self._releases.pop(transactional_id, None)
        if release is not None:
            release()

    def overdue(self, now_ms: int) -> list[str]:
        """Return the open transactions whose timeout has passed."""
        return [name for name, deadline_ms in self._deadlines.items() if deadline_ms <= now_ms]


class TransactionalIdExpiry:
    """Removes transactional ids that were not used for long, so that those of clients that are gone do not pile up."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, limits: Limits, registry: TransactionRegistry) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._registry = registry

    async def run(self) -> int:
        """Remove the ids that were idle for `transactional_id_idle_seconds` and return how many."""
        oldest_ms = self._clock.now_ms() - self._limits.transactional_id_idle_seconds * 1000
        removed = 0
        for page in range_pages(self._store, keys.TRANSACTIONS):
            idle = [key for key, value in page if _is_idle(read_transaction(value), oldest_ms)]
            if idle:
                removed += await self._remove(idle, oldest_ms)
        return removed

    async def _remove(self, idle: Sequence[bytes], oldest_ms: int) -> int:
        gone: list[bytes] = []

        def decide() -> Changes | None:
            gone.clear()
            for key in idle:
                value = self._store.latest(key)
                if value is not None and value == self._store.get(key) and _is_idle(read_transaction(value), oldest_ms):
                    gone.append(key)
            return Changes(puts=tuple((key, None) for key in gone)) if gone else None

        def settled(_: CommitReceipt | None) -> int:
            for key in gone:
                self._registry.remove(keys.transactional_id_of(key))
            return len(gone)

        return await self._committer.submit(Change(decide, settled))


def _is_idle(transaction: TransactionMetadata, oldest_ms: int) -> bool:
    return not transaction.is_open and transaction.changed_ms < oldest_ms
