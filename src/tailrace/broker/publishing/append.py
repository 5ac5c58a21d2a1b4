"""The batches of one request in one commit: each is judged for itself, as in Kafka.

This way is taken by requests of several batches, by transactional batches, and by topics that look into batches: for
duplicates, or to stamp them.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.broker.commits import Committer, Draft, Proposal
from tailrace.broker.publishing.context import AppendCallback, AppendOutcome, PlacedAppend, PublishContext, place
from tailrace.broker.publishing.dedup import DedupWindows
from tailrace.broker.publishing.fast_append import FastAppend
from tailrace.broker.publishing.validation import CheckedBatch, ReadBatch, checked_batch, missing, read_batch_for
from tailrace.broker.transactions.appends import TransactionalAppend
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import StoreClosedError, TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.record import NO_TIMESTAMP, Appended, RawBatch
from tailrace.wire.batch import NO_PRODUCER, TRANSACTIONAL_MASK, BatchHeader


class AppendBatches(Proposal[list[AppendOutcome]]):
    __slots__ = ("_adds_partitions", "_batches", "_context", "_joining", "_placed", "_windows")

    def __init__(
        self, context: PublishContext, batches: "Sequence[CheckedBatch | TailraceError]", *, adds_partitions: bool = False
    ) -> None:
        self._context = context
        self._batches = batches
        self._adds_partitions = adds_partitions
        self._joining: TransactionalAppend | None = None
        self._placed: list[PlacedAppend | TailraceError] = []
        self._windows: DedupWindows | None = None

    @property
    def held_bytes(self) -> int:
        return sum(len(checked.batch) for checked in self._batches if isinstance(checked, CheckedBatch))

    def decide(self) -> Changes | None:
        self._leave_transactions()
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

    def _despite(
        self, error: TailraceError, checked: CheckedBatch | TailraceError, placed: PlacedAppend | TailraceError
    ) -> AppendOutcome:
        """What was stored before is there still: its sender would take an error for the contrary, and send it as another."""
        if isinstance(checked, TailraceError) or isinstance(placed, TailraceError) or placed.append is not None:
            return error
        if not self._context.producers.has_stored(checked.partition, checked.header):
            return error
        start = self._context.log_start(checked.partition)
        return Appended(placed.base_offset, None, NO_TIMESTAMP, placed.duplicates, start)

    def _leave_transactions(self) -> None:
        if self._joining is not None:
            self._joining.failed()
            self._joining = None

    def _place(self, draft: Draft, windows: DedupWindows, checked: CheckedBatch) -> PlacedAppend:
        context = self._context
        live, partition, header = checked.live, checked.partition, checked.header
        base_offset = draft.next_offset(partition)
        sequenced = header.producer_id != NO_PRODUCER
        if sequenced and not header.is_transactional:
            context.joiner.check_plain(header)
        if sequenced:
            first = context.producers.find_duplicate(draft, partition, header)
            if first is not None:
                return PlacedAppend(live, None, first, NO_TIMESTAMP, header.records)
        if header.is_transactional:
            self._join_transaction(draft, partition, header, base_offset)
        placed = place(context, draft, windows, checked)
        if sequenced:
            context.producers.remember(draft, partition, header, placed.base_offset)
        return placed

    def _join_transaction(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        if self._joining is None:
            self._joining = self._context.joiner.joining(adds_partitions=self._adds_partitions)
        self._joining.join(draft, partition, header, offset)


PendingOutcomes = asyncio.Future[list[AppendOutcome]]
Judged = CheckedBatch | TailraceError

_QUICKLY_DECODED_RECORDS = 100
"""Of a batch for a topic that looks for duplicates: each of them becomes an object there."""


class Appender:
    def __init__(self, context: PublishContext, committer: Committer) -> None:
        self._context = context
        self._committer = committer
        self._bundle: FastAppend | None = None
        """What has come in this turn of the event loop."""
        self._turns: dict[PartitionId, asyncio.Future[None]] = {}
        """For partitions with batches that are being checked: done when the last of these is on its way."""
        self._checking: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def append(self, batches: Sequence[RawBatch], *, adds_partitions: bool = False) -> PendingOutcomes:
        """Append each batch or say why not, in the order of the batches.

        With `adds_partitions` a transactional batch adds its partition to the transaction, and begins one if none is open.

        The future itself fails only when the commit does. Batches of bytes are copied when they are stored; a `bytearray` or
        a writable view is changed in place and must be left alone from here on.
        """
        answer: PendingOutcomes = self._committer.loop.create_future()
        if len(batches) == 1:
            self.append_one(batches[0], _FutureWaiter(answer), adds_partitions=adds_partitions)
            return answer

        def place(judged: Sequence[Judged]) -> None:
            proposal = AppendBatches(self._context, judged, adds_partitions=adds_partitions)
            self._committer.submit(proposal).add_done_callback(partial(_copy_outcome, answer))

        self._in_turn([self._looked_at(raw) for raw in batches], place, partial(_fail, answer))
        return answer

    def append_one(self, raw: RawBatch, waiter: AppendCallback, *, adds_partitions: bool = False) -> None:
        """The same for one batch, without a future: the waiter is told once, and at once if the batch is refused."""
        looked_at = self._looked_at(raw)
        if not isinstance(looked_at, ReadBatch):
            self._place_one(waiter, adds_partitions, (looked_at,))
        else:
            self._in_turn((looked_at,), partial(self._place_one, waiter, adds_partitions), waiter.failed)

    async def close(self) -> None:
        """Take nothing more that takes long, and return when what is being checked is on its way."""
        self._is_closed = True
        while self._checking:
            await asyncio.wait(self._checking)

    def _looked_at(self, raw: RawBatch) -> ReadBatch | Judged:
        """Check the batch. A `ReadBatch` is still to be checked, in a thread or when it is its turn."""
        context = self._context
        try:
            live = context.topics.find(raw.topic) or missing(context.topics, raw.topic)
            read = read_batch_for(live, raw.partition, raw.batch, context.limits)
            if self._turns and read.partition in self._turns:
                return read
            if read.live.topic.settings.dedup is not None and read.header.records > _QUICKLY_DECODED_RECORDS:
                return read
            newest = context.checks.quick_check(read.batch, read.header)
            return read if newest is None else checked_batch(read, newest, context.clock.now_ms(), context.limits)
        except TailraceError as error:
            return _without_frames(error)

    def _in_turn(
        self,
        batches: Sequence[ReadBatch | Judged],
        place: Callable[[Sequence[Judged]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Place the batches of one request when all are checked, after what came earlier for their partitions."""
        judged = [each for each in batches if not isinstance(each, ReadBatch)]
        if len(judged) == len(batches):
            place(judged)
            return
        if self._is_closed:
            fail(StoreClosedError("the broker is closing; ask again when it is back"))
            return
        partitions = {each.partition for each in batches if not isinstance(each, TailraceError)}
        earlier = {self._turns[partition] for partition in partitions if partition in self._turns}
        turn: asyncio.Future[None] = self._committer.loop.create_future()
        self._turns.update(dict.fromkeys(partitions, turn))

        async def check() -> None:
            try:
                judged = await asyncio.gather(*map(self._judged, batches))
                for before in earlier:
                    await before
                place(judged)
            except Exception as error:  # noqa: BLE001  whoever sent them must hear of it
                fail(error)
            finally:
                turn.set_result(None)
                for partition in partitions:
                    if self._turns.get(partition) is turn:
                        del self._turns[partition]

        task = self._committer.loop.create_task(check())
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    async def _judged(self, batch: ReadBatch | Judged) -> Judged:
        if not isinstance(batch, ReadBatch):
            return batch
        try:
            return await asyncio.wrap_future(self._context.checks.in_thread(self._check, batch))
        except TailraceError as error:
            return _without_frames(error)

    def _check(self, read: ReadBatch) -> CheckedBatch:
        context = self._context
        newest = context.checks.check(read.batch, read.header)
        return checked_batch(read, newest, context.clock.now_ms(), context.limits)

    def _place_one(self, waiter: AppendCallback, adds_partitions: bool, judged: Sequence[Judged]) -> None:
        (checked,) = judged
        if isinstance(checked, TailraceError):
            waiter.told(checked)
        elif checked.live.takes_batches_as_they_are and not checked.header.attributes & TRANSACTIONAL_MASK:
            self._bundle_up(checked, waiter)
        else:
            self._append_alone(checked, waiter, adds_partitions=adds_partitions)

    def _append_alone(self, checked: CheckedBatch, waiter: AppendCallback, *, adds_partitions: bool = False) -> None:
        proposal = AppendBatches(self._context, [checked], adds_partitions=adds_partitions)
        self._committer.submit(proposal).add_done_callback(partial(_pass_on, waiter))

    def _bundle_up(self, checked: CheckedBatch, waiter: AppendCallback) -> None:
        bundle = self._bundle
        if bundle is None:
            bundle = self._bundle = FastAppend(self._context, self._append_alone)
            self._committer.loop.call_soon(self._submit)
            self._committer.let_first(self._submit)
        if bundle.add(checked, waiter):
            self._submit()

    def _submit(self) -> None:
        """What has come so far, if anything has."""
        bundle, self._bundle = self._bundle, None
        if bundle is not None:
            self._committer.submit(bundle)


class _FutureWaiter:
    __slots__ = ("_answer",)

    def __init__(self, answer: PendingOutcomes) -> None:
        self._answer = answer

    def told(self, outcome: AppendOutcome) -> None:
        if not self._answer.done():
            self._answer.set_result([outcome])

    def failed(self, error: BaseException) -> None:
        _fail(self._answer, error)


def _pass_on(waiter: AppendCallback, done: "asyncio.Future[list[AppendOutcome]]") -> None:
    """Tell what became of a batch that was committed by itself."""
    if done.cancelled():
        waiter.failed(asyncio.CancelledError())
        return
    error = done.exception()
    if error is None:
        waiter.told(done.result()[0])
    else:
        waiter.failed(error)


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
    """An error that is an answer, and no longer keeps alive what was in the frames it came through: a batch, decompressed."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
