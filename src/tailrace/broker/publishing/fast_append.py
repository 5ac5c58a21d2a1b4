"""Many small appends in one commit.

Single batches that come in the same turn of the event loop share a commit, which saves most of what a commit costs. Each is
still judged and answered for itself.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from tailrace.broker.commits import Draft, Proposal, StillInFlight
from tailrace.broker.publishing.context import AppendCallback, AppendOutcome, PublishContext
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


class _Arrival:
    """What a partition got of a bundle."""

    __slots__ = ("live", "log_start", "records", "size")

    def __init__(self, live: LiveTopic, log_start: Offset) -> None:
        self.live = live
        self.log_start = log_start
        self.records = 0
        self.size = 0


class FastAppend(Proposal[None]):
    """For topics that take batches as they are."""

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

    def add(self, checked: CheckedBatch, waiter: AppendCallback) -> bool:
        """Whether the bundle is full now."""
        self._waiting.append((checked, waiter))
        self._held_bytes += len(checked.batch)
        return self._held_bytes >= _MOST_BYTES or len(self._waiting) >= _MOST_BATCHES

    def decide(self) -> Changes | None:
        draft = Draft(self._context.store)
        placed = self._placed = []
        waiting = []
        for each in self._waiting:
            checked, waiter = each
            try:
                outcome: Append | AppendOutcome = self._place(draft, checked)
            except TailraceError as error:
                outcome = error
            except StillInFlight:
                # A duplicate of something in flight waits for that; the others need not.
                self._append_alone(checked, waiter)
                continue
            if isinstance(outcome, Appended) and self._context.producers.has_stored(checked.partition, checked.header):
                # Not to be told that there is no room: its sender would take it for not stored, and send it as another.
                _tell(waiter.told, outcome)
                continue
            placed.append(outcome)
            waiting.append(each)
        self._waiting = waiting
        return None if draft.is_empty else draft.changes()

    def settled(self, receipt: CommitReceipt | None) -> None:
        cursor = receipt.cursor if receipt is not None else Cursor(0)
        arrivals: dict[PartitionId, _Arrival] = {}
        for (checked, waiter), outcome in zip(self._waiting, self._placed, strict=True):
            if isinstance(outcome, Append):
                partition, batch, records, _, base_offset = outcome
                arrival = arrivals.get(partition)
                if arrival is None:
                    arrivals[partition] = arrival = _Arrival(checked.live, self._context.log_start(partition))
                arrival.records += records
                arrival.size += len(batch)
                outcome = Appended(base_offset, cursor, NO_TIMESTAMP, 0, arrival.log_start)
                cursor = Cursor(cursor + records)
            _tell(waiter.told, outcome)
        for partition, arrival in arrivals.items():
            self._context.arrived(arrival.live, partition, arrival.records, arrival.size)

    def failed(self, error: Exception) -> None:
        # Those who wait are told one by one, and nobody waits for the bundle as such.
        self.future.cancel()
        for _, waiter in self._waiting:
            _tell(waiter.failed, error)

    def _place(self, draft: Draft, checked: CheckedBatch) -> Append | AppendOutcome:
        partition, batch, header = checked.partition, checked.batch, checked.header
        base_offset = draft.next_offset(partition)
        if header.producer_id != NO_PRODUCER:
            self._context.joiner.check_plain(header)
            producers = self._context.producers
            first = producers.find_duplicate(draft, partition, header)
            if first is not None:
                return Appended(first, None, NO_TIMESTAMP, header.records, self._context.log_start(partition))
            producers.remember(draft, partition, header, base_offset)
        append = Append(partition, batch, header.records, header.max_timestamp, base_offset)
        draft.append(append)
        return append


def _tell(waiter: Callable[[T], None], outcome: T) -> None:
    try:
        waiter(outcome)
    except Exception:  # noqa: BLE001  those after it must hear of theirs
        _log.exception("whoever sent a batch could not be told what became of it")
