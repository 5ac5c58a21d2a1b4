"""Checks batches that were stored by versions which did not check records on append: their records may be invalid.

Kafka clients decode the batches themselves, and some of them fail or loop at a batch that can't be decoded, and lose the valid
ones that came with it. The first broker that checks records on append sets a mark at the end of the log. Batches before it are
checked when they are fetched: the valid ones are returned, and an invalid one is an error of its own. One range of valid
offsets is remembered for each partition, so a consumer that reads on has each batch checked once.
"""

from collections.abc import Sequence

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.commit import Buffer, Changes, CommitReceipt
from tailrace.model.errors import InvalidRequestError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.records import check_decodable


class UncheckedBatches:
    """Filters fetched batches that were never checked."""

    def __init__(self, store: Store, threads: ReadThreads, limits: Limits) -> None:
        self._store = store
        self._threads = threads
        self._limits = limits
        self._valid: dict[PartitionId, tuple[Offset, Offset]] = {}
        self.end = Cursor(0)
        """From this cursor on every batch was checked on append."""

    async def load(self, committer: Committer) -> None:
        """Load the mark, or set it at the end of the log."""

        def decide() -> Changes | None:
            if self._store.latest(keys.CHECKED_FROM) is not None:
                return None
            return Changes(puts=((keys.CHECKED_FROM, self._store.end_cursor().to_bytes(8)),))

        def settled(_: CommitReceipt | None) -> Cursor:
            return Cursor(int.from_bytes(self._store.get(keys.CHECKED_FROM) or b""))

        self.end = await committer.submit(Change(decide, settled))

    async def readable(
        self, topic: str, partition: PartitionId, batches: Sequence[Buffer], cursors: Sequence[Cursor]
    ) -> Sequence[Buffer]:
        """Return the batches before the first that can't be decoded. Raises `UnreadableBatchError` if that is the first one."""
        if not batches or cursors[0] >= self.end:
            return batches
        first, last = read_header(batches[0]), read_header(batches[-1])
        begin, end = Offset(first.base_offset), Offset(last.end_offset)
        known = self._valid.get(partition, (begin, begin))
        if known[0] <= begin and end <= known[1]:
            return batches
        invalid = await self._threads.run(self._first_invalid, topic, partition, batches, cursors)
        valid_end = end if invalid is None else Offset(invalid.first_offset)
        if valid_end > begin:
            self._valid[partition] = (known[0], valid_end) if known[0] <= begin <= known[1] else (begin, valid_end)
        if invalid is None:
            return batches
        if invalid.first_offset == begin:
            raise invalid.error
        return [batch for batch in batches if read_header(batch).base_offset < invalid.first_offset]

    def forget_partition(self, partition: PartitionId) -> None:
        """Drop what is remembered of a deleted partition."""
        self._valid.pop(partition, None)

    def _first_invalid(
        self, topic: str, partition: PartitionId, batches: Sequence[Buffer], cursors: Sequence[Cursor]
    ) -> CorruptBatch | None:
        for batch, cursor in zip(batches, cursors, strict=False):
            if cursor >= self.end:
                break
            try:
                check_decodable(batch, self._limits)
            except InvalidRequestError as error:
                header = read_header(batch)
                last = header.end_offset - 1
                return CorruptBatch(topic, partition.number, header.base_offset, last, str(error))
        return None
