"""Raw Kafka batches, as clients send them: checked, and in their order on the way to a commit.

Most are checked where they come in. One that takes longer is checked in a thread, and what comes after it for the same
partition waits for it: a client's batches are stored in the order in which it sent them.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.broker.commits.commit import Committer
from tailrace.broker.publishing.admission import CheckedBatch, ReadBatch, checked_batch, missing, read_batch_for
from tailrace.broker.publishing.append_batches import AppendBatches
from tailrace.broker.publishing.bundle import Bundle
from tailrace.broker.publishing.intake import Intake, Outcome, Waiter
from tailrace.model.errors import StoreClosedError, TailraceError
from tailrace.model.ids import PartitionId
from tailrace.model.record import RawBatch
from tailrace.wire.batch import TRANSACTIONAL_MASK

Answer = asyncio.Future[list[Outcome]]
Judged = CheckedBatch | TailraceError

_QUICKLY_DECODED_RECORDS = 100
"""Of a batch for a topic that looks for duplicates: each of them becomes an object there."""


class Appender:
    def __init__(self, intake: Intake, committer: Committer) -> None:
        self._intake = intake
        self._committer = committer
        self._bundle: Bundle | None = None
        """What has come in this turn of the event loop."""
        self._turns: dict[PartitionId, asyncio.Future[None]] = {}
        """For partitions with batches that are being checked: done when the last of these is on its way."""
        self._checking: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def append(self, batches: Sequence[RawBatch], *, adds_partitions: bool = False) -> Answer:
        """Append each batch or say why not, in the order of the batches.

        With `adds_partitions` a transactional batch adds its partition to the transaction, and begins one if none is open.

        The future itself fails only when the commit does. Batches of bytes are copied when they are stored; a `bytearray` or
        a writable view is changed in place and must be left alone from here on.
        """
        answer: Answer = self._committer.loop.create_future()
        if len(batches) == 1:
            self.append_one(batches[0], _FutureWaiter(answer), adds_partitions=adds_partitions)
            return answer

        def place(judged: Sequence[Judged]) -> None:
            proposal = AppendBatches(self._intake, judged, adds_partitions=adds_partitions)
            self._committer.submit(proposal).add_done_callback(partial(_copy_outcome, answer))

        self._in_turn([self._looked_at(raw) for raw in batches], place, partial(_fail, answer))
        return answer

    def append_one(self, raw: RawBatch, waiter: Waiter, *, adds_partitions: bool = False) -> None:
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
        intake = self._intake
        try:
            live = intake.topics.find(raw.topic) or missing(intake.topics, raw.topic)
            read = read_batch_for(live, raw.partition, raw.batch, intake.limits)
            if self._turns and read.partition in self._turns:
                return read
            if read.live.topic.settings.dedup is not None and read.header.records > _QUICKLY_DECODED_RECORDS:
                return read
            newest = intake.checks.quick_check(read.batch, read.header)
            return read if newest is None else checked_batch(read, newest, intake.clock.now_ms(), intake.limits)
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
            return await asyncio.wrap_future(self._intake.checks.in_thread(self._check, batch))
        except TailraceError as error:
            return _without_frames(error)

    def _check(self, read: ReadBatch) -> CheckedBatch:
        intake = self._intake
        newest = intake.checks.check(read.batch, read.header)
        return checked_batch(read, newest, intake.clock.now_ms(), intake.limits)

    def _place_one(self, waiter: Waiter, adds_partitions: bool, judged: Sequence[Judged]) -> None:
        (checked,) = judged
        if isinstance(checked, TailraceError):
            waiter.told(checked)
        elif checked.live.takes_batches_as_they_are and not checked.header.attributes & TRANSACTIONAL_MASK:
            self._bundle_up(checked, waiter)
        else:
            self._append_alone(checked, waiter, adds_partitions=adds_partitions)

    def _append_alone(self, checked: CheckedBatch, waiter: Waiter, *, adds_partitions: bool = False) -> None:
        proposal = AppendBatches(self._intake, [checked], adds_partitions=adds_partitions)
        self._committer.submit(proposal).add_done_callback(partial(_pass_on, waiter))

    def _bundle_up(self, checked: CheckedBatch, waiter: Waiter) -> None:
        bundle = self._bundle
        if bundle is None:
            bundle = self._bundle = Bundle(self._intake, self._append_alone)
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

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def told(self, outcome: Outcome) -> None:
        if not self._answer.done():
            self._answer.set_result([outcome])

    def failed(self, error: BaseException) -> None:
        _fail(self._answer, error)


def _pass_on(waiter: Waiter, done: "asyncio.Future[list[Outcome]]") -> None:
    """Tell what became of a batch that was committed by itself."""
    if done.cancelled():
        waiter.failed(asyncio.CancelledError())
        return
    error = done.exception()
    if error is None:
        waiter.told(done.result()[0])
    else:
        waiter.failed(error)


def _fail(answer: Answer, error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _copy_outcome(answer: Answer, done: Answer) -> None:
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
