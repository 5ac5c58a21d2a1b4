"""What is known of all transactional ids without reading the store. Changed only when a commit is durable."""

from tailrace.broker.transactions.state import Transaction
from tailrace.model.errors import LimitExceededError
from tailrace.model.ids import ProducerId
from tailrace.model.limits import Limits


class Registry:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
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
        """The transactional id that the producer id belongs to."""
        return self._owners.get(ProducerId(producer_id))

    def reserve_id(self, transactional_id: str) -> None:
        """Make room for a new transactional id, until it is there or given up."""
        if transactional_id in self._new_ids:
            return
        there = len(self._ids) + len(self._new_ids)
        if there >= self._limits.transactional_ids:
            raise LimitExceededError(
                f"there are {there} transactional ids, as many as transactional_ids allows; use fewer,"
                " or wait until silent ones are forgotten"
            )
        self._new_ids.add(transactional_id)

    def give_up_id(self, transactional_id: str) -> None:
        self._new_ids.discard(transactional_id)

    def enter(self, transactional_id: str, producer_id: ProducerId) -> None:
        """The id is there, or has another producer id than before."""
        self._new_ids.discard(transactional_id)
        before = self._ids.get(transactional_id)
        if before is not None:
            del self._owners[before]
        self._ids[transactional_id] = producer_id
        self._owners[producer_id] = transactional_id

    def leave(self, transactional_id: str) -> None:
        producer_id = self._ids.pop(transactional_id, None)
        if producer_id is not None:
            del self._owners[producer_id]

    def reserve_transaction(self, transactional_id: str) -> None:
        """Make room for one more open transaction, until it is there or given up."""
        if transactional_id in self._beginning:
            return
        there = len(self._deadlines) + len(self._beginning)
        if there >= self._limits.open_transactions:
            raise LimitExceededError(
                f"there are {there} open transactions, as many as open_transactions allows; try again when one has ended"
            )
        self._beginning.add(transactional_id)

    def give_up_transaction(self, transactional_id: str) -> None:
        self._beginning.discard(transactional_id)

    def began(self, transactional_id: str, transaction: Transaction) -> None:
        self._beginning.discard(transactional_id)
        self._deadlines[transactional_id] = transaction.deadline_ms

    def ended(self, transactional_id: str) -> None:
        self._deadlines.pop(transactional_id, None)

    def overdue(self, now_ms: int) -> list[str]:
        """Open transactions that have lasted longer than they may."""
        return [name for name, deadline_ms in self._deadlines.items() if deadline_ms <= now_ms]
