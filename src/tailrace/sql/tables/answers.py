"""What became of jobs, told by the writer's thread to those who wait for them on the event loop."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from tailrace.broker.tables.change_log import CommittedChanges
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor
from tailrace.sql.tables.jobs import Job, WriteJob

_log = logging.getLogger(__name__)


class Answers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def done(self, job: Job, result: object) -> None:
        self.call(_set_result, job.future, result)

    def written(self, jobs: Sequence[WriteJob], committed: CommittedChanges | None) -> None:
        """Each statement's result, with the cursor of its first change, if the log has any."""
        answers = []
        for job in jobs:
            results = job.results
            if committed is not None:
                results = [
                    result if first is None else result._replace(cursor=Cursor(committed.cursor + first))
                    for result, first in zip(results, job.firsts, strict=True)
                ]
            answers.append((job.future, results))
        self.call(_set_results, answers)

    def refused(self, jobs: Sequence[Job], error: TailraceError) -> None:
        for job in jobs:
            self.call(_set_exception, job.future, error.afresh())

    def call(self, callback: Callable[..., None], *args: object) -> None:
        """Call something on the event loop."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            _log.debug("the event loop is closed, and nobody is left who could be told")


def _set_results(answers: Sequence[tuple["asyncio.Future[object]", object]]) -> None:
    for future, result in answers:
        _set_result(future, result)


def _set_result(future: "asyncio.Future[object]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[object]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
