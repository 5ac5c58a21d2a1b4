"""The transaction coordinator: the requests of producers that have a transactional id.

Every request is decided on the durable state of its transactional id. If a change of that state is in flight, the request
waits for it, so that no response depends on a commit that may still fail.
"""

from collections.abc import Callable, Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft, StillInFlight
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.pending_offsets import PendingOffset, PendingOffsets, put_offsets, read_offsets
from tailrace.broker.groups.registry import GroupNames
from tailrace.broker.producers.producers import Producers
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions import rules
from tailrace.broker.transactions.ending import TransactionEnd, TransactionEnder
from tailrace.broker.transactions.registry import TransactionRegistry
from tailrace.broker.transactions.state import NO_RECORDS, TransactionMetadata, put_open, put_transaction, read_transaction
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import InvalidTransactionStateError, TailraceError, UnknownTopicError
from tailrace.model.group import OffsetCommit
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name, check_transactional_id
from tailrace.model.transaction import NO_EPOCH, ProducerIdentity, TransactionState
from tailrace.store.contract import Store

CheckMember = Callable[[], None]
"""Raises unless the group's member may commit offsets now."""


class TransactionCoordinator:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        producers: Producers,
        offsets: GroupOffsets,
        group_names: GroupNames,
        clock: Clock,
        limits: Limits,
        registry: TransactionRegistry,
        pending: PendingOffsets,
        ender: TransactionEnder,
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._producers = producers
        self._offsets = offsets
        self._group_names = group_names
        self._clock = clock
        self._limits = limits
        self._registry = registry
        self._pending = pending
        self._ender = ender
        self.timed_out = 0
        """Transactions that were aborted because their timeout has passed."""

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Return a producer for this id, in a new epoch. An open transaction of the one before is aborted in the same commit.

        A producer that asks for its next epoch passes its identity as `expected` and is refused if it was fenced. Like all
        requests of a transaction, it needs `publish` on the transactional id.
        """
        self._require_id(transactional_id)
        check_transactional_id(transactional_id, self._limits)
        rules.check_timeout(timeout_ms, self._limits)
        decision = _Decision()

        def decide() -> Changes | None:
            decision.clear()
            draft = Draft(self._store)
            known = self._find(draft, transactional_id)
            if known is None:
                self._registry.reserve_id(transactional_id)
                made = TransactionMetadata(
                    producer_id=self._producers.allocate_in(draft),
                    epoch=0,
                    timeout_ms=timeout_ms,
                    changed_ms=self._clock.now_ms(),
                )
            elif expected is not None and rules.is_repeated_init(transactional_id, known, expected):
                decision.transaction = known
                return None
            else:
                made = self._fence(draft, transactional_id, known, decision, retriable=expected is not None)
                made = msgspec.structs.replace(made, timeout_ms=timeout_ms, state=TransactionState.EMPTY)
            put_transaction(draft, transactional_id, made)
            decision.transaction = made
            return draft.changes()

        def settled(_: CommitReceipt | None) -> ProducerIdentity:
            return self._settled(transactional_id, decision)

        return await self._committer.submit(Change(decide, settled, lambda: self._registry.cancel_id(transactional_id)))

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[tuple[str, int]]
    ) -> None:
        """Add partitions, given by topic and number, to the transaction: all, or none if one does not exist."""
        self._require_id(transactional_id)
        for name in {topic for topic, _ in partitions}:
            self._topics.require("publish", name)
        targets = {self._topics.get(topic).partition(number): topic for topic, number in partitions}

        def change(draft: Draft, transaction: TransactionMetadata) -> TransactionMetadata:
            present = set(transaction.partitions)
            new = [target for target in targets if target not in present]
            for target in new:
                if self._topics.by_id(target.topic_id) is None:
                    raise UnknownTopicError(f"topic {targets[target]!r} has been deleted")
                put_open(draft, target, producer, NO_RECORDS)
            return msgspec.structs.replace(transaction, partitions=(*transaction.partitions, *new))

        await self._extend(transactional_id, producer, change)

    async def add_group(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Add a group whose offsets will be committed with the transaction."""
        self._require_id(transactional_id)
        self._topics.permissions.require("consume", "group", group)
        check_group_name(group, self._limits)
        await self._extend(transactional_id, producer, lambda _, transaction: _with_group(transaction, group))

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        commits: Sequence[OffsetCommit],
        check_member: CheckMember,
        *,
        adds_group: bool = False,
    ) -> list[TailraceError | None]:
        """Keep the offsets until the transaction ends. Return an error or `None` for each of them, in order.

        With `adds_group` the group need not have been added before.
        """
        self._require_id(transactional_id)
        self._topics.permissions.require("consume", "group", group)
        check_group_name(group, self._limits)
        await self._offsets.register_patterns(commits)
        outcomes: list[TailraceError | None] = []
        is_held = False
        offsets: list[PendingOffset] = []
        for commit in commits:
            try:
                partition = self._offsets.check(commit)
                offsets.append(PendingOffset(*partition, commit.offset, commit.leader_epoch, commit.metadata))
                outcomes.append(None)
            except TailraceError as error:
                outcomes.append(error)

        def change(draft: Draft, transaction: TransactionMetadata) -> TransactionMetadata:
            check_member()
            if group not in transaction.groups and not adds_group:
                raise InvalidTransactionStateError(
                    f"group {group!r} is not in an open transaction of {transactional_id!r}; add it first"
                )
            nonlocal is_held
            if not is_held:
                self._group_names.hold(group)
                self._pending.reserve(group, transactional_id)
                is_held = True
            if draft.latest(keys.group_key(group)) is None:
                draft.put(keys.group_key(group), b"")
            before = read_offsets(draft.latest(keys.pending_offsets_key(transactional_id, group)))
            merged = {offset.target: offset for offset in (*before, *offsets)}
            put_offsets(draft, transactional_id, group, list(merged.values()))
            count = transaction.offsets + len(merged) - len(before)
            return msgspec.structs.replace(_with_group(transaction, group), offsets=count)

        def settled() -> None:
            self._group_names.store(group)
            self._pending.add(group, transactional_id, offsets)
            release()

        def release() -> None:
            if is_held:
                self._group_names.release(group)
                self._pending.release(group, transactional_id)

        await self._extend(transactional_id, producer, change, settled, release)
        return outcomes

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, committed: bool, bumps_epoch: bool = False
    ) -> ProducerIdentity:
        """Commit or abort the transaction. Return the identity for the next one, with a new epoch if `bumps_epoch`."""
        self._require_id(transactional_id)
        decision = _Decision()

        def decide() -> Changes | None:
            decision.clear()
            draft = Draft(self._store)
            known = rules.check_mapping(transactional_id, self._find(draft, transactional_id), producer)
            action = rules.check_ending(transactional_id, known, producer, committed=committed, bumps=bumps_epoch)
            if action is rules.EndAction.NOTHING:
                decision.transaction = known
                return None
            made = self._next_epoch(draft, known, retriable=True) if bumps_epoch else known
            epoch = known.epoch + 1 if bumps_epoch else known.epoch
            decision.end = self._ender.put_end(draft, transactional_id, known, committed=committed, epoch=epoch)
            state = TransactionState.COMMITTED if committed else TransactionState.ABORTED
            made = msgspec.structs.replace(rules.close(made, state, self._clock.now_ms()), bumps=bumps_epoch)
            put_transaction(draft, transactional_id, made)
            decision.transaction = made
            return draft.changes()

        return await self._committer.submit(Change(decide, lambda _: self._settled(transactional_id, decision)))

    def _require_id(self, transactional_id: str) -> None:
        self._topics.permissions.require("publish", "transactional_id", transactional_id)

    async def abort_overdue(self) -> int:
        """Abort the transactions whose timeout has passed and return how many. Their producers are fenced."""
        overdue = self._registry.overdue(self._clock.now_ms())
        for transactional_id in overdue:
            await self._abort_if_overdue(transactional_id)
        return len(overdue)

    async def _extend(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        change: Callable[[Draft, TransactionMetadata], TransactionMetadata],
        on_settled: Callable[[], None] | None = None,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        """Apply a change to the open transaction, or to a new one."""
        began: TransactionMetadata | None = None

        def decide() -> Changes | None:
            nonlocal began
            began = None
            draft = Draft(self._store)
            known = rules.check_producer(transactional_id, self._find(draft, transactional_id), producer)
            now_ms = self._clock.now_ms()
            transaction = known if known.is_open else rules.begin(known, now_ms)
            changed = change(draft, transaction)
            rules.check_size(transactional_id, changed, self._limits)
            if changed == known and draft.is_empty:
                return None
            if not known.is_open:
                self._registry.reserve_transaction(transactional_id)
                began = transaction
            put_transaction(draft, transactional_id, changed)
            return draft.changes()

        def settled(_: CommitReceipt | None) -> None:
            if began is not None:
                self._registry.began(transactional_id, began)
            if on_settled is not None:
                on_settled()

        def failed() -> None:
            if began is not None:
                self._registry.cancel_transaction(transactional_id)
            if on_failed is not None:
                on_failed()

        await self._committer.submit(Change(decide, settled, failed))

    async def _abort_if_overdue(self, transactional_id: str) -> None:
        decision = _Decision()

        def decide() -> Changes | None:
            decision.clear()
            draft = Draft(self._store)
            known = self._find(draft, transactional_id)
            if known is None or not known.is_open or known.deadline_ms > self._clock.now_ms():
                return None
            made = self._fence(draft, transactional_id, known, decision, retriable=False)
            put_transaction(draft, transactional_id, made)
            decision.transaction = made
            return draft.changes()

        def settled(receipt: CommitReceipt | None) -> None:
            if receipt is not None:
                self._settled(transactional_id, decision)
                self.timed_out += 1

        await self._committer.submit(Change(decide, settled))

    def _find(self, draft: Draft, transactional_id: str) -> TransactionMetadata | None:
        key = keys.transaction_key(transactional_id)
        value = draft.latest(key)
        if value != self._store.get(key):
            raise StillInFlight
        return None if value is None else read_transaction(value)

    def _fence(
        self, draft: Draft, transactional_id: str, known: TransactionMetadata, decision: "_Decision", *, retriable: bool
    ) -> TransactionMetadata:
        """Return the id in an epoch that fences its producer. Its open transaction is aborted."""
        if known.is_open:
            decision.end = self._ender.put_end(draft, transactional_id, known, committed=False, epoch=known.epoch + 1)
        made = self._next_epoch(draft, known, retriable=retriable)
        made = rules.close(made, TransactionState.ABORTED, self._clock.now_ms())
        return msgspec.structs.replace(made, bumps=False)

    def _next_epoch(self, draft: Draft, known: TransactionMetadata, *, retriable: bool) -> TransactionMetadata:
        if not rules.has_epochs_left(known):
            return rules.with_new_id(known, self._producers.allocate_in(draft))
        return rules.with_next_epoch(known, last_epoch=known.epoch if retriable else NO_EPOCH)

    def _settled(self, transactional_id: str, decision: "_Decision") -> ProducerIdentity:
        made = decision.made
        self._producers.allocated(made.producer_id)
        self._registry.enter(transactional_id, made.producer_id)
        if decision.end is not None:
            self._ender.settled(decision.end)
        return made.identity


class _Decision:
    """What a decision changes, kept until it is durable."""

    __slots__ = ("end", "transaction")

    def __init__(self) -> None:
        self.transaction: TransactionMetadata | None = None
        self.end: TransactionEnd | None = None

    def clear(self) -> None:
        self.transaction = None
        self.end = None

    @property
    def made(self) -> TransactionMetadata:
        if self.transaction is None:
            raise LookupError("the decision has set no transaction")
        return self.transaction


def _with_group(transaction: TransactionMetadata, group: str) -> TransactionMetadata:
    if group in transaction.groups:
        return transaction
    return msgspec.structs.replace(transaction, groups=(*transaction.groups, group))
