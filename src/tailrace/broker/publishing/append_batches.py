"""The batches of one request in one commit: each is judged for itself, as in Kafka.

This way is taken by requests of several batches, by transactional batches, and by topics that look into batches: for
duplicates, or to stamp them.
"""

from collections.abc import Sequence

from tailrace.broker.commits.draft import Draft
from tailrace.broker.commits.proposal import Proposal
from tailrace.broker.publishing.admission import CheckedBatch
from tailrace.broker.publishing.dedup import Windows
from tailrace.broker.publishing.intake import Intake, Outcome
from tailrace.broker.publishing.placing import Placed, place
from tailrace.broker.transactions.appends import TransactionalAppend
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.record import NO_TIMESTAMP, Appended
from tailrace.wire.batch import NO_PRODUCER, BatchHeader


class AppendBatches(Proposal[list[Outcome]]):
    __slots__ = ("_adds_partitions", "_batches", "_intake", "_joining", "_placed", "_windows")

    def __init__(
        self, intake: Intake, batches: "Sequence[CheckedBatch | TailraceError]", *, adds_partitions: bool = False
    ) -> None:
        self._intake = intake
        self._batches = batches
        self._adds_partitions = adds_partitions
        self._joining: TransactionalAppend | None = None
        self._placed: list[Placed | TailraceError] = []
        self._windows: Windows | None = None

    @property
    def held_bytes(self) -> int:
        return sum(len(checked.batch) for checked in self._batches if isinstance(checked, CheckedBatch))

    def decide(self) -> Changes | None:
        self._leave_transactions()
        draft = Draft(self._intake.store)
        windows = self._windows = Windows(self._intake.dedup, draft)
        placed = self._placed = []
        for checked in self._batches:
            if isinstance(checked, TailraceError):
                placed.append(checked)
                continue
            try:
                placed.append(self._place(draft, windows, checked))
            except TailraceError as error:
                placed.append(error)
        windows.close()
        return None if draft.is_empty else draft.changes()

    def settled(self, receipt: CommitReceipt | None) -> list[Outcome]:
        outcomes: list[Outcome] = []
        cursor = receipt.cursor if receipt is not None else Cursor(0)
        for checked, placed in zip(self._batches, self._placed, strict=True):
            if isinstance(checked, TailraceError):
                outcomes.append(checked)
                continue
            if isinstance(placed, TailraceError):
                outcomes.append(placed)
                continue
            live, append, base_offset, append_time, duplicates = placed
            start = self._intake.log_start(checked.partition)
            if append is None:
                outcomes.append(Appended(base_offset, None, append_time, duplicates, start))
                continue
            outcomes.append(Appended(base_offset, cursor, append_time, duplicates, start))
            self._intake.arrived(live, append.partition, append.records, len(append.batch))
            cursor = Cursor(cursor + append.records)
        if self._windows is not None:
            self._windows.count()
        if self._joining is not None:
            self._joining.settled()
        return outcomes

    def failed(self, error: Exception) -> None:
        self._leave_transactions()
        if len(self._placed) != len(self._batches) or not isinstance(error, TailraceError) or self.future.done():
            return
        outcomes = [self._despite(error, *each) for each in zip(self._batches, self._placed, strict=True)]
        if any(isinstance(outcome, Appended) for outcome in outcomes):
            self.future.set_result(outcomes)

    def _despite(self, error: TailraceError, checked: CheckedBatch | TailraceError, placed: Placed | TailraceError) -> Outcome:
        """What was stored before is there still: its sender would take an error for the contrary, and send it as another."""
        if isinstance(checked, TailraceError) or isinstance(placed, TailraceError) or placed.append is not None:
            return error
        if not self._intake.producers.has_stored(checked.partition, checked.header):
            return error
        start = self._intake.log_start(checked.partition)
        return Appended(placed.base_offset, None, NO_TIMESTAMP, placed.duplicates, start)

    def _leave_transactions(self) -> None:
        if self._joining is not None:
            self._joining.failed()
            self._joining = None

    def _place(self, draft: Draft, windows: Windows, checked: CheckedBatch) -> Placed:
        intake = self._intake
        live, partition, header = checked.live, checked.partition, checked.header
        base_offset = draft.next_offset(partition)
        sequenced = header.producer_id != NO_PRODUCER
        if sequenced and not header.is_transactional:
            intake.joiner.check_plain(header)
        if sequenced:
            first = intake.producers.find_duplicate(draft, partition, header)
            if first is not None:
                return Placed(live, None, first, NO_TIMESTAMP, header.records)
        if header.is_transactional:
            self._join_transaction(draft, partition, header, base_offset)
        placed = place(intake, draft, windows, checked)
        if sequenced:
            intake.producers.remember(draft, partition, header, placed.base_offset)
        return placed

    def _join_transaction(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        if self._joining is None:
            self._joining = self._intake.joiner.joining(adds_partitions=self._adds_partitions)
        self._joining.join(draft, partition, header, offset)
