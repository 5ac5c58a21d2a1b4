"""Payloads put back into the batches that refer to them: the one place through which all readers get them.

A reader of any kind asks for batches and gets them whole, within its budget. Where a payload can't be had, its record is the
end of what is returned, and alone an error that names it; unless retention or a deletion took the record meanwhile, which is
told as such.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.broker.payloads import PayloadReferences
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.commit import Buffer, FetchedBatches
from tailrace.model.errors import CorruptBatchError, LostPayloadError, OffsetOutOfRangeError, TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.payload_references import expand_payload, expanded_size, is_payload_reference, read_payload_reference


class PayloadExpansion:
    """May be called from any thread; reads the disk."""

    def __init__(self, store: Store, references: PayloadReferences, limits: Limits) -> None:
        self._store = store
        self._references = references
        self._limits = limits
        self.lost = 0
        """Times that a payload could not be had."""

    def may_be_needed(self, partition: PartitionId) -> bool:
        return self._references.may_be_in(partition)

    def is_needed(self, partition: PartitionId, batches: Sequence[Buffer]) -> bool:
        """Whether one of the batches is to be expanded. For the event loop, right after they were fetched.

        Costs next to nothing where nobody publishes large values.
        """
        return self._references.may_be_in(partition) and any(map(is_payload_reference, batches))

    def fetched(self, partition: PartitionId, fetched: FetchedBatches, max_bytes: int) -> FetchedBatches:
        """The same with payloads: up to `max_bytes`, but at least one batch."""
        # Every batch is looked at: that the partition is known to refer to payloads may have been forgotten with its topic.
        if not any(map(is_payload_reference, fetched.batches)):
            return fetched
        batches: list[Buffer] = []
        size = 0
        for batch in fetched.batches:
            try:
                size += self._size(batch)
                if batches and size > max_bytes:
                    break
                batches.append(self.batch(partition, batch))
            except (LostPayloadError, OffsetOutOfRangeError):
                if not batches:
                    raise
                break
        return FetchedBatches(batches, fetched.bounds, fetched.cursors[: len(batches)])

    def batch(self, partition: PartitionId, batch: Buffer) -> Buffer:
        """The batch as its readers know it."""
        if not is_payload_reference(batch):
            return batch
        offset = read_header(batch).base_offset
        try:
            content = self._store.payloads.get(read_payload_reference(batch, self._limits))
        except (LostPayloadError, CorruptBatchError) as error:
            bounds = self._store.bounds(partition)
            if offset < bounds.start:
                raise OffsetOutOfRangeError.of(self._store.topic_names.of(partition), offset, *bounds) from None
            self.lost += 1
            raise LostPayloadError(
                f"offset {offset} of {self._store.topic_names.of(partition)} can't be read: {error}. Go on at {offset + 1}",
                offset + 1,
            ) from error
        return expand_payload(batch, content, self._limits)

    def _size(self, batch: Buffer) -> int:
        if is_payload_reference(batch):
            try:
                return expanded_size(batch, read_payload_reference(batch, self._limits))
            except CorruptBatchError:
                # Its expansion will tell.
                return len(batch)
        return len(batch)


class ReadAt(NamedTuple):
    """Batches of a partition from an offset on."""

    partition: PartitionId
    offset: Offset
    max_bytes: int


class Reader:
    def __init__(self, store: Store, expansion: PayloadExpansion, threads: ReadThreads) -> None:
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
