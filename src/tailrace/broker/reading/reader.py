"""Reads stored batches without blocking the event loop: those in memory and in the page cache at once, those on disk in a few
threads.

Batches that refer to payloads come back with their payloads in them (`PayloadExpansion`): no reader sees a reference.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.broker.payloads import PayloadReferences
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.commit import Buffer, FetchedBatches
from tailrace.model.errors import CorruptBatchError, LostPayloadError, OffsetOutOfRangeError, TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.payload_references import expand_payload, expanded_size, is_payload_reference, read_payload_reference


class ReadAt(NamedTuple):
    """A read of a partition from an offset on."""

    partition: PartitionId
    offset: Offset
    max_bytes: int


class Reader:
    """Reads batches of partitions, payloads included."""

    def __init__(self, store: Store, expansion: "PayloadExpansion", threads: ReadThreads) -> None:
        self._store = store
        self.expansion = expansion
        self.threads = threads

    async def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        """Return batches from the offset on: up to `max_bytes`, but at least one."""
        if self._store.is_hot(partition, offset):
            fetched = self._store.fetch(partition, offset, max_bytes)
            if self.expansion.is_needed(partition, fetched.batches):
                return await self.threads.run(self.expansion.fetched, partition, fetched, max_bytes)
            return fetched
        return await self.threads.run(self._fetch, partition, offset, max_bytes)

    def fetch_at_once(
        self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool
    ) -> FetchedBatches | None:
        """Return what `fetch` would if that needs neither the disk nor a thread, else `None`.

        Without `at_least_one` nothing is read from the page cache that is larger than `max_bytes`.
        """
        store = self._store
        if store.is_hot(partition, offset):
            fetched: FetchedBatches | None = store.fetch(partition, offset, max_bytes)
        else:
            fetched = store.fetch_cached(partition, offset, max_bytes, at_least_one=at_least_one)
        return None if fetched is None or self.expansion.is_needed(partition, fetched.batches) else fetched

    def is_shared(self, partition: PartitionId, offset: Offset) -> bool:
        """Return whether batches from this offset on are in memory anyway, so that all readers share the same bytes."""
        try:
            return self._store.is_hot(partition, offset) and not self.expansion.may_be_needed(partition)
        except TailraceError:
            return True

    async def fetch_ahead(
        self, wanted: Sequence[ReadAt], max_bytes: int, *, until_oversize: bool
    ) -> Mapping[ReadAt, FetchedBatches | None]:
        """Perform those reads that need the disk with one call in a thread, and return what each found.

        Reads of batches in memory are left out, and so are those beyond `max_bytes` and those that fail: `fetch` performs them,
        or raises. A batch may be larger than its read allows. When such batches use up `max_bytes`, or after the first of them
        with `until_oversize`, the remaining reads map to None.
        """
        cold = []
        left = max_bytes
        for read in wanted:
            left -= read.max_bytes
            if left < 0:
                break
            if not self._is_hot(read):
                cold.append(read)
        return await self.threads.run(self._fetch_all, cold, max_bytes, until_oversize) if len(cold) > 1 else {}

    def _fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        return self.expansion.fetched(partition, self._store.fetch(partition, offset, max_bytes), max_bytes)

    def _fetch_all(
        self, reads: Sequence[ReadAt], max_bytes: int, until_oversize: bool
    ) -> Mapping[ReadAt, FetchedBatches | None]:
        found: dict[ReadAt, FetchedBatches | None] = {}
        for read in reads:
            with suppress(TailraceError):
                self._store.start_reading(*read)
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


class PayloadExpansion:
    """Puts payloads back into the batches that refer to them. May be called from any thread; reads the disk.

    Where a payload can't be read, the batches before its record are returned; if there are none, an error names the record. If
    retention, compaction or a deletion took the record in the meantime, the error says that instead.
    """

    def __init__(self, store: Store, references: PayloadReferences, limits: Limits) -> None:
        self._store = store
        self._references = references
        self._limits = limits
        self.lost = 0
        """How often a payload could not be read."""

    def may_be_needed(self, partition: PartitionId) -> bool:
        """Return whether batches of the partition may refer to payloads."""
        return self._references.may_be_in(partition)

    def is_needed(self, partition: PartitionId, batches: Sequence[Buffer]) -> bool:
        """Return whether one of the batches has to be expanded. Called on the event loop right after they were fetched.

        Costs almost nothing if no large values are published.
        """
        return self._references.may_be_in(partition) and any(map(is_payload_reference, batches))

    def fetched(self, partition: PartitionId, fetched: FetchedBatches, max_bytes: int) -> FetchedBatches:
        """Return the batches with payloads: up to `max_bytes`, but at least one batch."""
        # Every batch is checked, because a deleted topic is no longer known to refer to payloads.
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
        """Return the batch with its payload."""
        if not is_payload_reference(batch):
            return batch
        offset = read_header(batch).base_offset
        try:
            content = self._store.payloads.get(read_payload_reference(batch, self._limits))
        except (LostPayloadError, CorruptBatchError) as error:
            bounds = self._store.bounds(partition)
            if offset < bounds.start or not self._store.has_batch(partition, Offset(offset)):
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
                # The expansion of the batch raises the error.
                return len(batch)
        return len(batch)


def cursor_at(store: Store, partition: PartitionId, offset: Offset) -> Cursor:
    """Return the cursor of a record, or of the first one after it if compaction has removed it. May read the disk."""
    fetched = store.fetch(partition, offset, 1)
    return Cursor(fetched.cursors[0] + max(0, offset - read_header(fetched.batches[0]).base_offset))
