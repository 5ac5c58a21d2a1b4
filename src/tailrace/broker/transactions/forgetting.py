"""Transactional ids that nobody has used for long are forgotten, so that those of clients that are gone do not pile up."""

from collections.abc import Sequence

from tailrace.broker import keys
from tailrace.broker.commits.commit import Committer
from tailrace.broker.commits.proposal import Change
from tailrace.broker.transactions.registry import Registry
from tailrace.broker.transactions.state import Transaction, read_transaction
from tailrace.model.changes import Changes, Receipt
from tailrace.model.clock import Clock
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

_SCAN_KEYS = 1_000


class SilentIds:
    def __init__(self, store: Store, committer: Committer, clock: Clock, limits: Limits, registry: Registry) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._registry = registry

    async def forget(self) -> int:
        """Those that were silent for `transactional_id_idle_seconds`. How many that were."""
        oldest_ms = self._clock.now_ms() - self._limits.transactional_id_idle_seconds * 1000
        forgotten = 0
        start = b""
        while True:
            found = self._store.range(keys.TRANSACTIONS, start, _SCAN_KEYS)
            silent = [key for key, value in found if _is_silent(read_transaction(value), oldest_ms)]
            if silent:
                forgotten += await self._forget(silent, oldest_ms)
            if len(found) < _SCAN_KEYS:
                return forgotten
            start = found[-1][0][len(keys.TRANSACTIONS) :] + b"\0"

    async def _forget(self, silent: Sequence[bytes], oldest_ms: int) -> int:
        gone: list[bytes] = []

        def decide() -> Changes | None:
            gone.clear()
            for key in silent:
                value = self._store.latest(key)
                if value is not None and value == self._store.get(key) and _is_silent(read_transaction(value), oldest_ms):
                    gone.append(key)
            return Changes(puts=tuple((key, None) for key in gone)) if gone else None

        def settled(_: Receipt | None) -> int:
            for key in gone:
                self._registry.leave(keys.transactional_id_of(key))
            return len(gone)

        return await self._committer.submit(Change(decide, settled))


def _is_silent(transaction: Transaction, oldest_ms: int) -> bool:
    return not transaction.is_open and transaction.changed_ms < oldest_ms
