"""Payloads put back into the batches that refer to them: the one place through which all readers get them.

A reader of any kind asks for batches and gets them whole, within its budget. Where a payload can't be had, its record is the
end of what is returned, and alone an error that names it; unless retention or a deletion took the record meanwhile, which is
told as such.
"""

from collections.abc import Sequence

from tailrace.broker.payloads.references import PayloadReferences
from tailrace.model.commit import Buffer, FetchedBatches
from tailrace.model.errors import CorruptBatchError, LostPayloadError, OffsetOutOfRangeError
from tailrace.model.ids import PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.references import expand, expanded_size, is_referring, read_reference


class Expansion:
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
        return self._references.may_be_in(partition) and any(map(is_referring, batches))

    def fetched(self, partition: PartitionId, fetched: FetchedBatches, max_bytes: int) -> FetchedBatches:
        """The same with payloads: up to `max_bytes`, but at least one batch."""
        # Every batch is looked at: that the partition is known to refer to payloads may have been forgotten with its topic.
        if not any(map(is_referring, fetched.batches)):
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
        if not is_referring(batch):
            return batch
        offset = read_header(batch).base_offset
        try:
            content = self._store.payloads.get(read_reference(batch, self._limits))
        except (LostPayloadError, CorruptBatchError) as error:
            bounds = self._store.bounds(partition)
            if offset < bounds.start:
                raise OffsetOutOfRangeError.of(self._store.topic_names.of(partition), offset, *bounds) from None
            self.lost += 1
            raise LostPayloadError(
                f"offset {offset} of {self._store.topic_names.of(partition)} can't be read: {error}. Go on at {offset + 1}",
                offset + 1,
            ) from error
        return expand(batch, content, self._limits)

    def _size(self, batch: Buffer) -> int:
        if is_referring(batch):
            try:
                return expanded_size(batch, read_reference(batch, self._limits))
            except CorruptBatchError:
                # Its expansion will tell.
                return len(batch)
        return len(batch)
