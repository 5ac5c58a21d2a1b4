"""The few threads that read the disk, decode and encode, so that the event loop does not have to.

A call that finds `queued_reads` others waiting is rejected, so a slow disk does not fill memory with waiting calls.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tailrace.model.errors import OverloadedError
from tailrace.model.limits import Limits

P = ParamSpec("P")
T = TypeVar("T")


class ReadThreads:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.read_threads, "tailrace-reader")
        self.queued = 0
        """Calls that wait for a thread or run in one."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call in one of the threads and return its result. Raises `OverloadedError` if too many calls wait."""
        if self.queued >= self._limits.queued_reads:
            raise OverloadedError(
                f"{self.queued} reads wait for the disk, as many as queued_reads allows; try again after a pause"
            )
        loop = asyncio.get_running_loop()
        self.queued += 1
        done = self._threads.submit(call, *args, **kwargs)
        # The call counts until its thread is free again, even if the caller stops waiting earlier.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finished))
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """Wait for the calls that run, and cancel the rest."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _finished(self) -> None:
        self.queued -= 1
