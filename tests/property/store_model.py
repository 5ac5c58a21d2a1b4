"""What a store is, in the plainest words: dicts and lists, no files, no threads, no indexes."""

from collections.abc import Sequence

from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.ids import Offset, PartitionId
from tests.support.batches import StoredRecord, decode_batch


class ModelBatch:
    def __init__(self, cursor: int, partition: PartitionId, records: Sequence[StoredRecord], size: int) -> None:
        self.cursor = cursor
        self.partition = partition
        self.records = records
        self.size = size

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1

    @property
    def newest(self) -> int:
        return max(record.timestamp for record in self.records)


class StoreModel:
    """Takes the same changes as a store, and knows what should be there."""

    def __init__(self) -> None:
        self.starts: dict[PartitionId, int] = {}
        self.ends: dict[PartitionId, int] = {}
        self.log: list[ModelBatch] = []
        self.state: dict[bytes, bytes] = {}
        self.cursor = 0

    def apply(self, changes: Changes) -> tuple[int, list[int]]:
        """The cursor and the offsets that the receipt must name."""
        first, offsets = self.cursor, []
        for topic_id, count in changes.creates:
            for number in range(count):
                self.starts.setdefault(PartitionId(topic_id, number), 0)
                self.ends.setdefault(PartitionId(topic_id, number), 0)
        for topic_id in changes.drops:
            for partition in [partition for partition in self.ends if partition.topic_id == topic_id]:
                del self.starts[partition], self.ends[partition]
        for partition, start in changes.trims:
            self.starts[partition] = max(self.starts[partition], start)
        for append in changes.appends:
            base = self.ends[append.partition]
            records = [record._replace(offset=base + record.offset) for record in decode_batch(append.batch)]
            self.log.append(ModelBatch(self.cursor, append.partition, records, len(append.batch)))
            self.ends[append.partition] += len(records)
            self.cursor += len(records)
            offsets.append(base)
        for prefix in changes.drop_prefixes:
            self.state = {key: value for key, value in self.state.items() if not key.startswith(prefix)}
        for key, value in changes.puts:
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value
        self.log = [batch for batch in self.log if batch.end > self.starts.get(batch.partition, 1 << 62)]
        return first, offsets

    def bounds(self) -> dict[PartitionId, OffsetBounds]:
        return {partition: OffsetBounds(Offset(self.starts[partition]), Offset(end)) for partition, end in self.ends.items()}

    def batches(self, partition: PartitionId) -> list[ModelBatch]:
        return [batch for batch in self.log if batch.partition == partition]

    def records(self, partition: PartitionId) -> list[StoredRecord]:
        return [record for batch in self.batches(partition) for record in batch.records]

    def first_at_or_after(self, partition: PartitionId, timestamp: int) -> int | None:
        return next((batch.records[0].offset for batch in self.batches(partition) if batch.newest >= timestamp), None)

    def last_that_leaves(self, partition: PartitionId, keep_bytes: int) -> int:
        first, total = self.ends[partition], 0
        for batch in reversed(self.batches(partition)):
            if total >= keep_bytes:
                break
            total += batch.size
            first = batch.records[0].offset
        return first

    def holding(self, cursor: int) -> ModelBatch | None:
        """The first batch whose last record is not below the cursor."""
        return next((batch for batch in self.log if batch.cursor + len(batch.records) > cursor), None)
