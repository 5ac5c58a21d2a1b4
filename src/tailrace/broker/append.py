"""Raw Kafka batches, as clients send them. The records inside are not looked at, unless the topic looks for duplicates."""

import asyncio
from collections.abc import Sequence
from functools import partial

from tailrace.broker.admission import CheckedBatch, check_batch_for
from tailrace.broker.append_batches import AppendBatches
from tailrace.broker.bundle import Answer, Bundle
from tailrace.broker.commit import Committer
from tailrace.broker.intake import Intake
from tailrace.model.errors import TailraceError
from tailrace.model.record import RawBatch
from tailrace.wire.batch import TRANSACTIONAL_MASK


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
            only = self._checked(batches[0])
            if (
                isinstance(only, CheckedBatch)
                and only.live.takes_batches_as_they_are
                and not only.header.attributes & TRANSACTIONAL_MASK
            ):
                return self._bundled(only)
            checked = [only]
        else:
            checked = list(map(self._checked, batches))
        return self._committer.submit(AppendBatches(self._intake, checked, adds_partitions=adds_partitions))

    def _checked(self, raw: RawBatch) -> CheckedBatch | TailraceError:
        intake = self._intake
        topic, number, batch = raw
        try:
            return check_batch_for(intake.topics.get(topic), number, batch, intake.clock.now_ms(), intake.limits)
        except TailraceError as error:
            return _without_frames(error)

    def _bundled(self, checked: CheckedBatch) -> Answer:
        loop = self._committer.loop
        answer: Answer = loop.create_future()
        bundle = self._bundle
        if bundle is None:
            bundle = self._bundle = Bundle(self._intake)
            loop.call_soon(self._submit, bundle)
            self._committer.let_first(partial(self._submit, bundle))
        if bundle.add(checked, answer):
            self._submit(bundle)
        return answer

    def _submit(self, bundle: Bundle) -> None:
        if bundle is self._bundle:
            self._bundle = None
            # Those who wait are told one by one; nobody waits for the bundle as such.
            self._committer.submit(bundle).add_done_callback(asyncio.Future.exception)


def _without_frames(error: TailraceError) -> TailraceError:
    """An error that is an answer, and no longer keeps alive what was in the frames it came through: a batch, decompressed."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
