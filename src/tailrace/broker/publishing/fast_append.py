"""Fast path of `AppendBatches` in `append.py`: single batches of many requests share one commit, which saves most of its cost.

Triggered by a request of one batch that is not transactional, for a topic that stores batches unchanged (no deduplication, no
append time). All such batches of one turn of the event loop are committed together; each is accepted, rejected and answered by
itself. `test_fast_append_answers_and_stores_like_append` holds both paths equal.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from tailrace.broker.commits import Draft, Proposal, StillInFlight
from tailrace.broker.publishing.context import AppendCallback, AppendOutcome, PublishContext, stored_before_fence
from tailrace.broker.publishing.validation import CheckedBatch
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import MIB
from tailrace.model.record import NO_TIMESTAMP, Appended
from tailrace.wire.batch import NO_PRODUCER

_MOST_BATCHES = 1_000
_MOST_BYTES = MIB

T = TypeVar("T")

_log = logging.getLogger(__name__)


class FastAppend(Proposal[None]):
    """Appends batches of different requests in one commit."""

    __slots__ = ("_append_alone", "_context", "_held_bytes", "_placed", "_waiting")

    def __init__(self, context: PublishContext, append_alone: Callable[[CheckedBatch, AppendCallback], None]) -> None:
        self._context = context
        self._append_alone = append_alone
        self._waiting: list[tuple[CheckedBatch, AppendCallback]] = []
        self._placed: list[Append | AppendOutcome] = []
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def add(self, checked: CheckedBatch, callback: AppendCallback) -> bool:
        """Add a batch, and return whether the commit is full now."""
        self._waiting.append((checked, callback))
        self._held_bytes += len(checked.batch)
        return self._held_bytes >= _MOST_BYTES or len(self._waiting) >= _MOST_BATCHES

    def decide(self) -> Changes | None:
        draft = Draft(self._context.store)
        placed = self._placed = []
        waiting = []
        for each in self._waiting:
            checked, callback = each
            try:
                outcome: Append | AppendOutcome = self._place(draft, checked)
            except TailraceError as error:
                outcome = error
            except StillInFlight:
                # A duplicate of a batch in flight waits for that one; the others need not.
                self._append_alone(checked, callback)
                continue
            if isinstance(outcome, Appended) and self._context.producers.has_stored(checked.partition, checked.header):
                # Answered now: if this commit fails, its sender would assume that it is not stored, and send it as a new one.
                _call(callback.completed, outcome)
                continue
            placed.append(outcome)
            waiting.append(each)
        self._waiting = waiting
        return None if draft.is_empty else draft.changes()

    def settled(self, receipt: CommitReceipt | None) -> None:
        cursor = receipt.cursor if receipt is not None else Cursor(0)
        totals: dict[PartitionId, _PartitionTotal] = {}
        for (checked, callback), outcome in zip(self._waiting, self._placed, strict=True):
            if isinstance(outcome, Append):
                partition, batch, records, _, base_offset, _ = outcome
                total = totals.get(partition)
                if total is None:
                    totals[partition] = total = _PartitionTotal(checked.live, self._context.log_start(partition))
                total.records += records
                total.size += len(batch)
                outcome = Appended(base_offset, cursor, NO_TIMESTAMP, 0, total.log_start)
                cursor = Cursor(cursor + records)
            _call(callback.completed, outcome)
        for partition, total in totals.items():
            self._context.arrived(total.live, partition, total.records, total.size)

    def failed(self, error: Exception) -> None:
        # Callbacks are called one by one, and nobody awaits the future of this proposal.
        self.future.cancel()
        for _, callback in self._waiting:
            _call(callback.failed, error)

    def _place(self, draft: Draft, checked: CheckedBatch) -> Append | AppendOutcome:
        partition, batch, header = checked.partition, checked.batch, checked.header
        base_offset = draft.next_offset(partition)
        if checked.live.fence is not None:
            stored = stored_before_fence(self._context, draft, checked)
            return Appended(stored, None, NO_TIMESTAMP, header.records, self._context.log_start(partition))
        if header.producer_id != NO_PRODUCER:
            self._context.transactional_appends.check_plain(header)
            producers = self._context.producers
            first = producers.find_duplicate(draft, partition, header)
            if first is not None:
                return Appended(first, None, NO_TIMESTAMP, header.records, self._context.log_start(partition))
            producers.remember(draft, partition, header, base_offset)
        append = Append(partition, batch, header.records, header.max_timestamp, base_offset, checked.oldest_timestamp)
        draft.append(append)
        return append


class _PartitionTotal:
    """What was appended to one partition."""

    __slots__ = ("live", "log_start", "records", "size")

    def __init__(self, live: LiveTopic, log_start: Offset) -> None:
        self.live = live
        self.log_start = log_start
        self.records = 0
        self.size = 0


def _call(callback: Callable[[T], None], outcome: T) -> None:
    try:
        callback(outcome)
    except Exception:  # noqa: BLE001  the callbacks after it must be called too
        _log.exception("the sender of a batch could not be answered")
