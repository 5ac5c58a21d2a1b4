"""Reads the store without holding up the event loop: what is in memory at once, what is on disk in a few threads.

What comes out of here is whole: payloads that batches refer to are in them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tailrace.broker.expansion import Expansion
from tailrace.model.changes import Fetched
from tailrace.model.errors import OverloadedError
from tailrace.model.ids import Offset, Partition
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

P = ParamSpec("P")
T = TypeVar("T")


class Reader:
    def __init__(self, store: Store, expansion: Expansion, limits: Limits) -> None:
        self._store = store
        self.expansion = expansion
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.read_threads, "tailrace-reader")
        self.queued = 0
        """Reads that wait for a thread or are in one."""

    async def fetch(self, partition: Partition, offset: Offset, max_bytes: int) -> Fetched:
        if self._store.is_hot(partition, offset):
            fetched = self._store.fetch(partition, offset, max_bytes)
            if self.expansion.is_needed(partition, fetched.batches):
                return await self.in_thread(self.expansion.fetched, partition, fetched, max_bytes)
            return fetched
        return await self.in_thread(self._fetch, partition, offset, max_bytes)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something that may take long in one of the threads."""
        if self.queued >= self._limits.queued_reads:
            raise OverloadedError(
                f"{self.queued} reads wait for the disk, as many as queued_reads allows; try again after a pause"
            )
        loop = asyncio.get_running_loop()
        self.queued += 1
        done = self._threads.submit(call, *args, **kwargs)
        # Not when the caller stops waiting, but when the thread is free again.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finished))
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _fetch(self, partition: Partition, offset: Offset, max_bytes: int) -> Fetched:
        return self.expansion.fetched(partition, self._store.fetch(partition, offset, max_bytes), max_bytes)

    def _finished(self) -> None:
        self.queued -= 1
