"""Reads the store without holding up the event loop: what is in memory at once, what is on disk in a few threads.

What comes out of here is whole: payloads that batches refer to are in them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.broker.payloads.expansion import Expansion
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.commit import FetchedBatches
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.store.contract import Store


class ReadAt(NamedTuple):
    """Batches of a partition from an offset on."""

    partition: PartitionId
    offset: Offset
    max_bytes: int


class Reader:
    def __init__(self, store: Store, expansion: Expansion, threads: ReadThreads) -> None:
        self._store = store
        self.expansion = expansion
        self.threads = threads

    async def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        if self._store.is_hot(partition, offset):
            fetched = self._store.fetch(partition, offset, max_bytes)
            if self.expansion.is_needed(partition, fetched.batches):
                return await self.threads.run(self.expansion.fetched, partition, fetched, max_bytes)
            return fetched
        return await self.threads.run(self._fetch, partition, offset, max_bytes)

    def is_shared(self, partition: PartitionId, offset: Offset) -> bool:
        """Whether batches from this offset on are in memory anyway, and all readers get the same bytes."""
        try:
            return self._store.is_hot(partition, offset) and not self.expansion.may_be_needed(partition)
        except TailraceError:
            return True

    async def fetch_ahead(
        self, wanted: Sequence[ReadAt], max_bytes: int, *, until_oversize: bool
    ) -> Mapping[ReadAt, FetchedBatches | None]:
        """What of this is on disk, with one trip to a thread for all of it.

        What is in memory is left out, and what is beyond the bytes or can't be read: `fetch` has that, or says why not.
        A batch may be larger than what was asked for. Where the bytes are used up by such, or after the first one with
        `until_oversize`, the other reads have `None`.
        """
        cold = []
        left = max_bytes
        for read in wanted:
            left -= read.max_bytes
            if left < 0:
                break
            if not self._is_hot(read):
                cold.append(read)
        return await self.threads.run(self._fetch_in_turn, cold, max_bytes, until_oversize) if len(cold) > 1 else {}

    def _fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        return self.expansion.fetched(partition, self._store.fetch(partition, offset, max_bytes), max_bytes)

    def _fetch_in_turn(
        self, reads: Sequence[ReadAt], max_bytes: int, until_oversize: bool
    ) -> Mapping[ReadAt, FetchedBatches | None]:
        found: dict[ReadAt, FetchedBatches | None] = {}
        for read in reads:
            if max_bytes <= 0:
                found[read] = None
                continue
            with suppress(TailraceError):
                found[read] = fetched = self._fetch(*read)
                size = sum(map(len, fetched.batches))
                max_bytes = 0 if until_oversize and size > read.max_bytes else max_bytes - size
        return found

    def _is_hot(self, read: ReadAt) -> bool:
        try:
            return self._store.is_hot(read.partition, read.offset)
        except TailraceError:
            return True
