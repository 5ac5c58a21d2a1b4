"""Raw Kafka batches, as clients send them. The records inside are not looked at, unless the topic looks for duplicates."""

import asyncio
from collections.abc import Sequence
from functools import partial

from tailrace.broker.commits.commit import Committer
from tailrace.broker.publishing.admission import CheckedBatch, check_batch_for
from tailrace.broker.publishing.append_batches import AppendBatches, Outcome
from tailrace.broker.publishing.bundle import Bundle, Waiter, pass_on
from tailrace.broker.publishing.intake import Intake
from tailrace.model.errors import TailraceError
from tailrace.model.record import RawBatch
from tailrace.wire.batch import TRANSACTIONAL_MASK

Answer = asyncio.Future[list[Outcome]]


class Appender:
    def __init__(self, intake: Intake, committer: Committer) -> None:
        self._intake = intake
        self._committer = committer
        self._bundle: Bundle | None = None
        """What has come in this turn of the event loop."""

    def append(self, batches: Sequence[RawBatch], *, adds_partitions: bool = False) -> Answer:
        """Append each batch or say why not, in the order of the batches.

        With `adds_partitions` a transactional batch adds its partition to the transaction, and begins one if none is open.

        The future itself fails only when the commit does. Batches of bytes are copied when they are stored; a `bytearray` or
        a writable view is changed in place and must be left alone from here on.
        """
        if len(batches) == 1:
            answer: Answer = self._committer.loop.create_future()
            self.append_one(batches[0], _FutureWaiter(answer), adds_partitions=adds_partitions)
            return answer
        checked = list(map(self._checked, batches))
        return self._committer.submit(AppendBatches(self._intake, checked, adds_partitions=adds_partitions))

    def append_one(self, raw: RawBatch, waiter: Waiter, *, adds_partitions: bool = False) -> None:
        """The same for one batch, without a future: the waiter is told once, and at once if the batch is refused."""
        checked = self._checked(raw)
        if isinstance(checked, TailraceError):
            waiter.told(checked)
        elif checked.live.takes_batches_as_they_are and not checked.header.attributes & TRANSACTIONAL_MASK:
            self._bundle_up(checked, waiter)
        else:
            proposal = AppendBatches(self._intake, [checked], adds_partitions=adds_partitions)
            self._committer.submit(proposal).add_done_callback(partial(pass_on, waiter))

    def _checked(self, raw: RawBatch) -> CheckedBatch | TailraceError:
        intake = self._intake
        try:
            return check_batch_for(intake.topics.get(raw.topic), raw.partition, raw.batch, intake.clock.now_ms(), intake.limits)
        except TailraceError as error:
            return _without_frames(error)

    def _bundle_up(self, checked: CheckedBatch, waiter: Waiter) -> None:
        bundle = self._bundle
        if bundle is None:
            bundle = self._bundle = Bundle(self._intake)
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
        if not self._answer.done():
            self._answer.set_exception(error)


def _without_frames(error: TailraceError) -> TailraceError:
    """An error that is an answer, and no longer keeps alive what was in the frames it came through: a batch, decompressed."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
