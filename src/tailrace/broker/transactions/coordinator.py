"""The transaction coordinator: what producers ask for by name.

Every request is decided on the durable state of its transactional id. One that finds a change of it in flight waits for that,
so no answer leans on something that may still fail.
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
        concluder: TransactionEnder,
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
        self._concluder = concluder
        self.timed_out = 0
        """Transactions that were aborted because they took too long."""

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """A producer for this id, in a new epoch. What the one before it left open is aborted in the same commit.

        A producer that only wants its next epoch says who it is; then it is refused if another has taken over.
        """
        check_transactional_id(transactional_id, self._limits)
        rules.check_timeout(timeout_ms, self._limits)
        step = _Step()

        def decide() -> Changes | None:
            step.clear()
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
                step.transaction = known
                return None
            else:
                made = self._taken_over(draft, transactional_id, known, step, retriable=expected is not None)
                made = msgspec.structs.replace(made, timeout_ms=timeout_ms, state=TransactionState.EMPTY)
            put_transaction(draft, transactional_id, made)
            step.transaction = made
            return draft.changes()

        def settled(_: CommitReceipt | None) -> ProducerIdentity:
            return self._settled(transactional_id, step)

        return await self._committer.submit(Change(decide, settled, lambda: self._registry.give_up_id(transactional_id)))

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[tuple[str, int]]
    ) -> None:
        """Announce partitions, given by topic and number. All are added, or none if one is not there."""
        targets = [self._topics.get(topic).partition(number) for topic, number in partitions]

        def change(draft: Draft, transaction: TransactionMetadata) -> TransactionMetadata:
            there = set(transaction.partitions)
            new = [target for target in dict.fromkeys(targets) if target not in there]
            for target in new:
                if self._topics.by_id(target.topic_id) is None:
                    raise UnknownTopicError(f"a topic of the transaction of {transactional_id!r} has been deleted")
                put_open(draft, target, producer, NO_RECORDS)
            return msgspec.structs.replace(transaction, partitions=(*transaction.partitions, *new))

        await self._extend(transactional_id, producer, change)

    async def add_group(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Announce that offsets of this group will be committed with the transaction."""
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
        """Keep the offsets until the transaction ends. What became of each is told in their order.

        With `adds_group` the group need not be announced before.
        """
        check_group_name(group, self._limits)
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
                self._pending.come(group, transactional_id)
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
            self._pending.arrived(group, transactional_id, offsets)
            let_go()

        def let_go() -> None:
            if is_held:
                self._group_names.release(group)
                self._pending.give_up(group, transactional_id)

        await self._extend(transactional_id, producer, change, settled, let_go)
        return outcomes

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, committed: bool, bumps_epoch: bool = False
    ) -> ProducerIdentity:
        """Commit or abort, and say with which epoch to go on: a new one for clients that want it so."""
        step = _Step()

        def decide() -> Changes | None:
            step.clear()
            draft = Draft(self._store)
            known = rules.check_mapping(transactional_id, self._find(draft, transactional_id), producer)
            verdict = rules.check_ending(transactional_id, known, producer, committed=committed, bumps=bumps_epoch)
            if verdict is rules.EndAction.NOTHING:
                step.transaction = known
                return None
            made = self._next_epoch(draft, known, retriable=True) if bumps_epoch else known
            epoch = known.epoch + 1 if bumps_epoch else known.epoch
            step.conclusion = self._concluder.conclude(draft, transactional_id, known, committed=committed, epoch=epoch)
            state = TransactionState.COMMITTED if committed else TransactionState.ABORTED
            made = msgspec.structs.replace(rules.close(made, state, self._clock.now_ms()), bumps=bumps_epoch)
            put_transaction(draft, transactional_id, made)
            step.transaction = made
            return draft.changes()

        return await self._committer.submit(Change(decide, lambda _: self._settled(transactional_id, step)))

    async def abort_overdue(self) -> int:
        """Abort the transactions that have lasted too long. Their producers are fenced."""
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
        """Add to the open transaction, or begin one."""
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
                self._registry.give_up_transaction(transactional_id)
            if on_failed is not None:
                on_failed()

        await self._committer.submit(Change(decide, settled, failed))

    async def _abort_if_overdue(self, transactional_id: str) -> None:
        step = _Step()

        def decide() -> Changes | None:
            step.clear()
            draft = Draft(self._store)
            known = self._find(draft, transactional_id)
            if known is None or not known.is_open or known.deadline_ms > self._clock.now_ms():
                return None
            made = self._taken_over(draft, transactional_id, known, step, retriable=False)
            put_transaction(draft, transactional_id, made)
            step.transaction = made
            return draft.changes()

        def settled(receipt: CommitReceipt | None) -> None:
            if receipt is not None:
                self._settled(transactional_id, step)
                self.timed_out += 1

        await self._committer.submit(Change(decide, settled))

    def _find(self, draft: Draft, transactional_id: str) -> TransactionMetadata | None:
        key = keys.transaction_key(transactional_id)
        value = draft.latest(key)
        if value != self._store.get(key):
            raise StillInFlight
        return None if value is None else read_transaction(value)

    def _taken_over(
        self, draft: Draft, transactional_id: str, known: TransactionMetadata, step: "_Step", *, retriable: bool
    ) -> TransactionMetadata:
        """The id with an epoch that fences the one before it, whose open transaction is aborted."""
        if known.is_open:
            step.conclusion = self._concluder.conclude(draft, transactional_id, known, committed=False, epoch=known.epoch + 1)
        made = self._next_epoch(draft, known, retriable=retriable)
        made = rules.close(made, TransactionState.ABORTED, self._clock.now_ms())
        return msgspec.structs.replace(made, bumps=False)

    def _next_epoch(self, draft: Draft, known: TransactionMetadata, *, retriable: bool) -> TransactionMetadata:
        if not rules.has_epochs_left(known):
            return rules.with_new_id(known, self._producers.allocate_in(draft))
        return rules.with_next_epoch(known, last_epoch=known.epoch if retriable else NO_EPOCH)

    def _settled(self, transactional_id: str, step: "_Step") -> ProducerIdentity:
        made = step.made
        self._producers.given_out(made.producer_id)
        self._registry.enter(transactional_id, made.producer_id)
        if step.conclusion is not None:
            self._concluder.settled(step.conclusion)
        return made.identity


class _Step:
    """What a decision has come to, for when it is durable."""

    __slots__ = ("conclusion", "transaction")

    def __init__(self) -> None:
        self.transaction: TransactionMetadata | None = None
        self.conclusion: TransactionEnd | None = None

    def clear(self) -> None:
        self.transaction = None
        self.conclusion = None

    @property
    def made(self) -> TransactionMetadata:
        if self.transaction is None:
            raise LookupError("nothing was decided")
        return self.transaction


def _with_group(transaction: TransactionMetadata, group: str) -> TransactionMetadata:
    if group in transaction.groups:
        return transaction
    return msgspec.structs.replace(transaction, groups=(*transaction.groups, group))
