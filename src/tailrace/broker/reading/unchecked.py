"""Batches from before batches were looked into when they came: they may hold anything behind a right checksum.

Kafka's clients decode what they fetch themselves, and some give up, or loop, at a batch that can't be decoded, and lose the
good ones that came with it. So what lies before the mark that is set here once, by the first broker that checks what comes,
is looked into before it is fetched: good batches go out, and a bad one is an error of its own. What was found good is
remembered, one range for each partition, so a consumer that reads on has each batch checked once.
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
    def __init__(self, store: Store, threads: ReadThreads, limits: Limits) -> None:
        self._store = store
        self._threads = threads
        self._limits = limits
        self._good: dict[PartitionId, tuple[Offset, Offset]] = {}
        self.end = Cursor(0)
        """From this cursor on every batch was checked when it came."""

    async def load(self, committer: Committer) -> None:
        """Find the mark, or set it at the end of the log."""

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
        """The batches up to the first that can't be decoded. Raises `UnreadableBatchError` where that is the first of all."""
        if not batches or cursors[0] >= self.end:
            return batches
        first, last = read_header(batches[0]), read_header(batches[-1])
        begin, end = Offset(first.base_offset), Offset(last.base_offset + last.records)
        known = self._good.get(partition, (begin, begin))
        if known[0] <= begin and end <= known[1]:
            return batches
        bad = await self._threads.run(self._first_bad, topic, partition, batches, cursors)
        good_end = end if bad is None else Offset(bad.first_offset)
        if good_end > begin:
            self._good[partition] = (known[0], good_end) if known[0] <= begin <= known[1] else (begin, good_end)
        if bad is None:
            return batches
        if bad.first_offset == begin:
            raise bad.error
        return [batch for batch in batches if read_header(batch).base_offset < bad.first_offset]

    def forget_partition(self, partition: PartitionId) -> None:
        self._good.pop(partition, None)

    def _first_bad(
        self, topic: str, partition: PartitionId, batches: Sequence[Buffer], cursors: Sequence[Cursor]
    ) -> CorruptBatch | None:
        for batch, cursor in zip(batches, cursors, strict=False):
            if cursor >= self.end:
                break
            try:
                check_decodable(batch, self._limits)
            except InvalidRequestError as error:
                header = read_header(batch)
                last = header.base_offset + header.records - 1
                return CorruptBatch(topic, partition.number, header.base_offset, last, str(error))
        return None
