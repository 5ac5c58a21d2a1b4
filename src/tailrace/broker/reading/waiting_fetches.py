"""Fetches that found too little and wait for more, each until its deadline.

A waiter is a future, counted down by the commits that touch its partitions; nothing polls. Whatever happens to a partition
besides (its topic deleted, its start moved) wakes its waiters as well, and they find out by reading again.
"""

import asyncio
from collections.abc import Collection

from tailrace.broker.isolation import StableOffsets
from tailrace.model.errors import OverloadedError
from tailrace.model.fetch import Isolation
from tailrace.model.ids import PartitionId
from tailrace.model.limits import Limits


class WaitingFetches:
    def __init__(self, stable: StableOffsets, limits: Limits) -> None:
        self._stable = stable
        self._limits = limits
        self._waiting: dict[PartitionId, set[_Waiter]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def wait(
        self, partitions: Collection[PartitionId], missing_bytes: int, deadline: float, isolation: Isolation
    ) -> None:
        """Until there may be so many bytes more, until something else happens to the partitions, or until the deadline."""
        if self._count >= self._limits.fetch_waiters:
            raise OverloadedError(
                f"{self._count} fetches wait already, as many as fetch_waiters allows; try again after a pause"
            )
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), missing_bytes, isolation)
        timer = loop.call_at(deadline, waiter.wake)
        self._count += 1
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(waiter)
        try:
            await waiter.future
        finally:
            timer.cancel()
            self._count -= 1
            for partition in partitions:
                waiters = self._waiting[partition]
                waiters.discard(waiter)
                if not waiters:
                    del self._waiting[partition]

    def arrived(self, partition: PartitionId, size: int) -> None:
        """So many bytes more can be read."""
        waiters = self._waiting.get(partition)
        if waiters is not None:
            is_held = self._stable.is_held(partition)
            for waiter in waiters:
                if is_held and waiter.isolation is Isolation.READ_COMMITTED:
                    continue
                waiter.missing_bytes -= size
                if waiter.missing_bytes <= 0:
                    waiter.wake()

    def stabilized(self, partition: PartitionId, size: int) -> None:
        """A transaction has ended, with a marker of so many bytes: readers of committed records may see more than that."""
        self.arrived(partition, size)
        for waiter in self._waiting.get(partition, ()):
            if waiter.isolation is Isolation.READ_COMMITTED:
                waiter.wake()

    def disturbed(self, partition: PartitionId) -> None:
        """Something else happened to the partition; whoever waits must look."""
        for waiter in self._waiting.get(partition, ()):
            waiter.wake()

    def wake_all(self) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.wake()


class _Waiter:
    __slots__ = ("future", "isolation", "missing_bytes")

    def __init__(self, future: "asyncio.Future[None]", missing_bytes: int, isolation: Isolation) -> None:
        self.future = future
        self.missing_bytes = missing_bytes
        self.isolation = isolation

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)
