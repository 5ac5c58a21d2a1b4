"""Appends raw Kafka batches, as clients send them: checks them, keeps their order, and commits them.

Most batches are checked where they arrive. One whose check takes longer is checked in a thread, and later batches for the same
partition wait for it: the batches of a client are stored in the order in which it sent them. So is one whose topic has another
codec: it is compressed again in the thread.

`AppendBatches` is the general way to commit them: the batches of one request in one commit, each accepted or rejected by
itself, as in Kafka. Single batches for topics that store batches unchanged take the fast path (`fast_append.py`).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.broker.commits import Committer, Draft, Proposal
from tailrace.broker.publishing.context import (
    AppendCallback,
    AppendOutcome,
    PlacedAppend,
    PublishContext,
    place,
    stored_before_fence,
)
from tailrace.broker.publishing.dedup import DedupWindows
from tailrace.broker.publishing.fast_append import FastAppend
from tailrace.broker.publishing.validation import (
    CheckedBatch,
    ReadBatch,
    checked_batch,
    needs_recompression,
    raise_unknown_topic,
    read_batch_for,
    recompressed,
)
from tailrace.broker.transactions.appends import TransactionalAppend
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import StoreClosedError, TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.record import NO_TIMESTAMP, Appended, RawBatch
from tailrace.wire.batch import NO_PRODUCER, TRANSACTIONAL_MASK, BatchHeader

PendingOutcomes = asyncio.Future[list[AppendOutcome]]
CheckResult = CheckedBatch | TailraceError

_DECODED_INLINE_RECORDS = 100
"""Batches with more records for a topic with deduplication are decoded in a thread: each record becomes an object."""


class Appender:
    """Checks batches and submits them, in the order of their arrival for each partition."""

    def __init__(self, context: PublishContext, committer: Committer) -> None:
        self._context = context
        self._committer = committer
        self._collected: FastAppend | None = None
        """The batches that arrived in this turn of the event loop."""
        self._turns: dict[PartitionId, asyncio.Future[None]] = {}
        """For partitions with batches that are being checked: done when the last of these is submitted."""
        self._checking: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def append(self, batches: Sequence[RawBatch], *, adds_partitions: bool = False) -> PendingOutcomes:
        """Append the batches of one request. The future gets an outcome for each, in their order, and fails if the commit does.

        With `adds_partitions` a transactional batch adds its partition to the transaction, and begins one if none is open.
        A batch of `bytes` is copied when it is stored; a `bytearray` or a writable view is changed in place, so the caller must
        not touch it again.
        """
        answer: PendingOutcomes = self._committer.loop.create_future()
        if len(batches) == 1:
            self.append_one(batches[0], _FutureCallback(answer), adds_partitions=adds_partitions)
            return answer

        def place(results: Sequence[CheckResult]) -> None:
            proposal = AppendBatches(self._context, results, adds_partitions=adds_partitions)
            self._committer.submit(proposal).add_done_callback(partial(_copy_outcome, answer))

        self._place_in_order([self._check_inline(raw) for raw in batches], place, partial(_fail, answer))
        return answer

    def append_one(self, raw: RawBatch, callback: AppendCallback, *, adds_partitions: bool = False) -> None:
        """Append one batch. The callback is called once, and right away if the batch is rejected."""
        checked = self._check_inline(raw)
        if not isinstance(checked, ReadBatch):
            self._place_one(callback, adds_partitions, (checked,))
        else:
            self._place_in_order((checked,), partial(self._place_one, callback, adds_partitions), callback.failed)

    async def close(self) -> None:
        """Reject batches that need a thread from now on, and return when those that are being checked are submitted."""
        self._is_closed = True
        while self._checking:
            await asyncio.wait(self._checking)

    def _check_inline(self, raw: RawBatch) -> ReadBatch | CheckResult:
        """Check the batch if that is fast. A returned `ReadBatch` has to be checked in a thread, or waits for its turn."""
        context = self._context
        try:
            if context.permissions.is_on:
                context.topics.require("publish", raw.topic)
            live = context.topics.find(raw.topic) or raise_unknown_topic(context.topics, raw.topic)
            read = read_batch_for(live, raw.partition, raw.batch, context.limits)
            if self._turns and read.partition in self._turns:
                return read
            if read.live.topic.settings.dedup is not None and read.header.records > _DECODED_INLINE_RECORDS:
                return read
            if needs_recompression(read):
                return read
            timestamps = context.checks.check_inline(read.batch, read.header, needs_keys=live.needs_keys)
            return read if timestamps is None else checked_batch(read, timestamps, context.clock.now_ms(), context.limits)
        except TailraceError as error:
            return _without_frames(error)

    def _place_in_order(
        self,
        batches: Sequence[ReadBatch | CheckResult],
        place: Callable[[Sequence[CheckResult]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Call `place` when all batches of a request are checked and earlier batches for their partitions are submitted."""
        results = [each for each in batches if not isinstance(each, ReadBatch)]
        if len(results) == len(batches):
            place(results)
            return
        if self._is_closed:
            fail(StoreClosedError("the broker is closing; send the batch again after its restart"))
            return
        partitions = {each.partition for each in batches if not isinstance(each, TailraceError)}
        earlier = {self._turns[partition] for partition in partitions if partition in self._turns}
        turn: asyncio.Future[None] = self._committer.loop.create_future()
        self._turns.update(dict.fromkeys(partitions, turn))

        async def check() -> None:
            try:
                results = await asyncio.gather(*map(self._check_in_thread, batches))
                for submitted in earlier:
                    await submitted
                place(results)
            except Exception as error:  # noqa: BLE001  the sender must get the error
                fail(error)
            finally:
                turn.set_result(None)
                for partition in partitions:
                    if self._turns.get(partition) is turn:
                        del self._turns[partition]

        task = self._committer.loop.create_task(check())
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    async def _check_in_thread(self, batch: ReadBatch | CheckResult) -> CheckResult:
        if not isinstance(batch, ReadBatch):
            return batch
        try:
            return await asyncio.wrap_future(self._context.checks.in_thread(self._check, batch))
        except TailraceError as error:
            return _without_frames(error)

    def _check(self, read: ReadBatch) -> CheckedBatch:
        context = self._context
        timestamps = context.checks.check(read.batch, read.header, needs_keys=read.live.needs_keys)
        return checked_batch(recompressed(read, context.limits), timestamps, context.clock.now_ms(), context.limits)

    def _place_one(self, callback: AppendCallback, adds_partitions: bool, results: Sequence[CheckResult]) -> None:
        (checked,) = results
        if isinstance(checked, TailraceError):
            callback.completed(checked)
        elif checked.live.takes_batches_as_they_are and not checked.header.attributes & TRANSACTIONAL_MASK:
            self._collect(checked, callback)
        else:
            self._append_alone(checked, callback, adds_partitions=adds_partitions)

    def _append_alone(self, checked: CheckedBatch, callback: AppendCallback, *, adds_partitions: bool = False) -> None:
        proposal = AppendBatches(self._context, [checked], adds_partitions=adds_partitions)
        self._committer.submit(proposal).add_done_callback(partial(_call_back, callback))

    def _collect(self, checked: CheckedBatch, callback: AppendCallback) -> None:
        collected = self._collected
        if collected is None:
            collected = self._collected = FastAppend(self._context, self._append_alone)
            self._committer.loop.call_soon(self._submit)
            self._committer.before_next_submit(self._submit)
        if collected.add(checked, callback):
            self._submit()

    def _submit(self) -> None:
        """Submit the batches collected so far, if there are any."""
        collected, self._collected = self._collected, None
        if collected is not None:
            self._committer.submit(collected)


class AppendBatches(Proposal[list[AppendOutcome]]):
    """Appends the batches of one request in one commit. Each is accepted or rejected by itself."""

    __slots__ = ("_adds_partitions", "_batches", "_context", "_placed", "_transaction", "_windows")

    def __init__(
        self, context: PublishContext, batches: "Sequence[CheckedBatch | TailraceError]", *, adds_partitions: bool = False
    ) -> None:
        self._context = context
        self._batches = batches
        self._adds_partitions = adds_partitions
        self._transaction: TransactionalAppend | None = None
        self._placed: list[PlacedAppend | TailraceError] = []
        self._windows: DedupWindows | None = None

    @property
    def held_bytes(self) -> int:
        return sum(len(checked.batch) for checked in self._batches if isinstance(checked, CheckedBatch))

    def decide(self) -> Changes | None:
        self._undo_transactions()
        draft = Draft(self._context.store)
        windows = self._windows = DedupWindows(self._context.dedup, draft)
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

    def settled(self, receipt: CommitReceipt | None) -> list[AppendOutcome]:
        outcomes: list[AppendOutcome] = []
        cursor = receipt.cursor if receipt is not None else Cursor(0)
        for checked, placed in zip(self._batches, self._placed, strict=True):
            if isinstance(checked, TailraceError):
                outcomes.append(checked)
                continue
            if isinstance(placed, TailraceError):
                outcomes.append(placed)
                continue
            live, append, base_offset, append_time, duplicates = placed
            start = self._context.log_start(checked.partition)
            if append is None:
                outcomes.append(Appended(base_offset, None, append_time, duplicates, start))
                continue
            outcomes.append(Appended(base_offset, cursor, append_time, duplicates, start))
            self._context.arrived(live, append.partition, append.records, len(append.batch))
            cursor = Cursor(cursor + append.records)
        if self._windows is not None:
            self._windows.count()
        if self._transaction is not None:
            self._transaction.settled()
        return outcomes

    def failed(self, error: Exception) -> None:
        self._undo_transactions()
        if len(self._placed) != len(self._batches) or not isinstance(error, TailraceError) or self.future.done():
            return
        outcomes = [self._outcome_despite(error, *each) for each in zip(self._batches, self._placed, strict=True)]
        if any(isinstance(outcome, Appended) for outcome in outcomes):
            self.future.set_result(outcomes)

    def _outcome_despite(
        self, error: TailraceError, checked: CheckedBatch | TailraceError, placed: PlacedAppend | TailraceError
    ) -> AppendOutcome:
        """Return the outcome of a batch when the commit failed.

        A duplicate is stored all the same. On an error its sender would assume that it is not, and send it as a new batch.
        """
        if isinstance(checked, TailraceError) or isinstance(placed, TailraceError) or placed.append is not None:
            return error
        if not self._context.producers.has_stored(checked.partition, checked.header):
            return error
        start = self._context.log_start(checked.partition)
        return Appended(placed.base_offset, None, NO_TIMESTAMP, placed.duplicates, start)

    def _undo_transactions(self) -> None:
        if self._transaction is not None:
            self._transaction.failed()
            self._transaction = None

    def _place(self, draft: Draft, windows: DedupWindows, checked: CheckedBatch) -> PlacedAppend:
        context = self._context
        live, partition, header = checked.live, checked.partition, checked.header
        base_offset = draft.next_offset(partition)
        if live.fence is not None:
            return PlacedAppend(live, None, stored_before_fence(context, draft, checked), NO_TIMESTAMP, header.records)
        sequenced = header.producer_id != NO_PRODUCER
        if sequenced and not header.is_transactional:
            context.transactional_appends.check_plain(header)
        if sequenced:
            first = context.producers.find_duplicate(draft, partition, header)
            if first is not None:
                return PlacedAppend(live, None, first, NO_TIMESTAMP, header.records)
        if header.is_transactional:
            self._append_to_transaction(draft, partition, header, base_offset)
        placed = place(context, draft, windows, checked)
        if sequenced:
            context.producers.remember(draft, partition, header, placed.base_offset)
        return placed

    def _append_to_transaction(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        if self._transaction is None:
            self._transaction = self._context.transactional_appends.new(adds_partitions=self._adds_partitions)
        self._transaction.join(draft, partition, header, offset)


class _FutureCallback:
    __slots__ = ("_answer",)

    def __init__(self, answer: PendingOutcomes) -> None:
        self._answer = answer

    def completed(self, outcome: AppendOutcome) -> None:
        if not self._answer.done():
            self._answer.set_result([outcome])

    def failed(self, error: BaseException) -> None:
        _fail(self._answer, error)


def _call_back(callback: AppendCallback, done: "asyncio.Future[list[AppendOutcome]]") -> None:
    """Call the callback with the outcome of a batch that was committed alone."""
    if done.cancelled():
        callback.failed(asyncio.CancelledError())
        return
    error = done.exception()
    if error is None:
        callback.completed(done.result()[0])
    else:
        callback.failed(error)


def _fail(answer: PendingOutcomes, error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _copy_outcome(answer: PendingOutcomes, done: PendingOutcomes) -> None:
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())


def _without_frames(error: TailraceError) -> TailraceError:
    """Return the error without its traceback, whose frames would keep a decompressed batch in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
