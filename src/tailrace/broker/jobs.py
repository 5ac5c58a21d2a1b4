"""Background jobs, each run at an interval. A job that fails is logged, counted and run again after the next interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

_log = logging.getLogger(__name__)


class BackgroundJob(NamedTuple):
    name: str
    interval_seconds: float
    run: Callable[[], Awaitable[object]]


class BackgroundJobs:
    """Runs the jobs, and counts runs and failures by name."""

    def __init__(self, jobs: tuple[BackgroundJob, ...]) -> None:
        self._jobs = jobs
        self._tasks: list[asyncio.Task[None]] = []
        self.runs = {job.name: 0 for job in jobs}
        self.failures = {job.name: 0 for job in jobs}

    def start(self) -> None:
        """Start a task for each job on the running event loop."""
        self._tasks = [asyncio.create_task(self._repeat(job), name=f"tailrace-{job.name}") for job in self._jobs]

    async def close(self) -> None:
        """Cancel the tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, job: BackgroundJob) -> None:
        while True:
            await asyncio.sleep(job.interval_seconds)
            try:
                await job.run()
            except Exception:  # noqa: BLE001  the top of a task; the next run may succeed
                self.failures[job.name] += 1
                _log.exception("background job %s failed; it runs again in %g seconds", job.name, job.interval_seconds)
            else:
                self.runs[job.name] += 1
