"""Payloads: large values that are stored beside the log, from their publish to their removal.

A payload is durable before the frame that refers to it is submitted (`Payloads`). The frame also puts the reference into the
store's state (`PayloadReferences`). A background job removes payloads that no record refers to any more (`PayloadSweep`).
Readers get payloads back in their batches through `PayloadExpansion` in `reading/reader.py`.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from struct import Struct
from typing import NamedTuple, ParamSpec, TypeVar

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.commit import Changes
from tailrace.model.errors import OverloadedError, StoreClosedError, TailraceError, UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.record import DIGEST_BYTES, PayloadReference, reference_to
from tailrace.store.contract import PayloadStore, Store, scan_keys

_REFERENCE = Struct(f">{DIGEST_BYTES}sQ")
_FORGOTTEN_AT_ONCE = 1_000
_REMOVED_AT_ONCE = 50
"""Publishes with large values wait for the removal of at most so many."""
_MOST_REMEMBERED = 100_000

P = ParamSpec("P")
T = TypeVar("T")


class PayloadUse(NamedTuple):
    """A record that refers to a payload."""

    partition: PartitionId
    offset: Offset
    reference: PayloadReference

    @property
    def state_keys(self) -> tuple[bytes, bytes]:
        partition, offset, reference = self
        return keys.payload_key(partition, offset), keys.payload_use_key(reference.digest, partition, offset)


class PayloadReferences:
    """Which records refer to which payloads: the settled state in the store. May be called from any thread.

    A reference is two keys, put in the frame of the record: one by record, in the order of offsets, so that the references of
    deleted records are a range; and one by payload, so that a lookup tells whether any record refers to it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions: set[PartitionId] = set()

    def load(self) -> None:
        """Read from the store which partitions have references."""
        self._partitions.update(self._referring_partitions())

    def may_be_in(self, partition: PartitionId) -> bool:
        """Return whether the partition may hold references. If not, its batches need no expansion."""
        return partition in self._partitions

    def forget_partition(self, partition: PartitionId) -> None:
        """Drop a deleted partition. The sweep finds the payloads that it referred to."""
        self._partitions.discard(partition)

    def add(self, draft: Draft, use: PayloadUse) -> None:
        """Put a reference into the draft."""
        # Known in memory before the record is visible to any reader.
        self._partitions.add(use.partition)
        by_record, by_payload = use.state_keys
        draft.put(by_record, _REFERENCE.pack(*use.reference))
        draft.put(by_payload, b"")

    def has_any(self, digest: bytes) -> bool:
        """Return whether any record refers to the payload."""
        return bool(self._store.range(keys.payload_uses(digest), limit=1))

    def of_deleted_records(self, most: int) -> list[PayloadUse]:
        """Return up to `most` references of records that were trimmed or whose topic was deleted."""
        found: list[PayloadUse] = []
        for partition in self._referring_partitions():
            found += self._below(partition, self._start_of(partition), most - len(found))
            if len(found) == most:
                break
        return found

    def of_compacted_records(self, partition: PartitionId, most: int) -> list[PayloadUse]:
        """Return up to `most` references of records that compaction has removed. A reference has a batch of its own."""
        uses = (_use(key, value) for key, value in scan_keys(self._store, keys.payloads_of_partition(partition)))
        start = self._start_of(partition)
        if start is None:
            return []
        return list(islice((use for use in uses if use.offset >= start and not self._store.has_batch(*use[:2])), most))

    def referring_partitions(self) -> list[PartitionId]:
        """Return the partitions with references."""
        return list(self._referring_partitions())

    def sizes(self, partition: PartitionId) -> Iterator[tuple[Offset, int]]:
        """Return the offsets of a partition that refer to payloads, in order, and the payloads' sizes."""
        for key, value in scan_keys(self._store, keys.payloads_of_partition(partition)):
            use = _use(key, value)
            yield use.offset, use.reference.size

    def _referring_partitions(self) -> Iterator[PartitionId]:
        """Find the partitions with references by one lookup for each."""
        start = b""
        while first := self._store.range(keys.PAYLOADS, start, 1):
            partition, _ = keys.read_payload_key(first[0][0])
            yield partition
            start = keys.after_partition(partition)

    def _below(self, partition: PartitionId, start: Offset | None, most: int) -> list[PayloadUse]:
        found = self._store.range(keys.payloads_of_partition(partition), limit=most)
        uses = [_use(key, value) for key, value in found]
        return uses if start is None else [use for use in uses if use.offset < start]

    def _start_of(self, partition: PartitionId) -> Offset | None:
        """Return the start of the partition, or None if it was deleted."""
        try:
            return self._store.bounds(partition).start
        except UnknownPartitionError:
            return None


def _use(key: bytes, value: bytes) -> PayloadUse:
    partition, offset = keys.read_payload_key(key)
    return PayloadUse(partition, offset, PayloadReference._make(_REFERENCE.unpack(value)))


class Payloads:
    """Stores and removes payloads.

    From before it is written until its frame is settled a payload is pinned, so that the sweep does not remove it in between.
    Writing, pinning and removing are done by one thread, so what one of them found holds until it is done. When a publish
    fails, its payloads are abandoned: other records may refer to them or none, and the sweep finds out.
    """

    def __init__(self, store: PayloadStore, references: PayloadReferences, limits: Limits) -> None:
        self._store = store
        self._references = references
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, "tailrace-payloads")
        self._waiting: deque[_WaitingContents] = deque()
        self._pins: Counter[bytes] = Counter()
        self._abandoned: set[bytes] = set()
        self._is_closed = False
        self.pending_bytes = 0
        """Bytes of values that are being written or wait to be written."""
        self.stored = 0
        self.stored_bytes = 0
        self.found = 0
        """Values that were stored already."""
        self.removed = 0

    def is_large(self, value: bytes | None) -> bool:
        """Return whether the value is stored beside the log."""
        return value is not None and len(value) > self._limits.payload_inline_bytes

    async def store(self, contents: Sequence[bytes]) -> list[PayloadReference]:
        """Make the contents durable and pin them. The caller must release or abandon the returned references in any case."""
        if self._is_closed:
            raise StoreClosedError("the broker is closing and accepts no new requests")
        size = sum(map(len, contents))
        if self.pending_bytes and self.pending_bytes + size > self._limits.pending_payload_bytes:
            raise OverloadedError(
                f"{self.pending_bytes} bytes of payloads wait to be written, and {size} more would exceed"
                f" pending_payload_bytes ({self._limits.pending_payload_bytes}); try again after a pause"
            )
        self.pending_bytes += size
        written: Future[list[PayloadReference]] = Future()
        self._waiting.append(_WaitingContents(contents, written))
        # The first call to run writes all that wait by then, with one sync of the folder; the other calls find nothing to do.
        self._thread.submit(self._write_waiting)
        writing = asyncio.wrap_future(written)
        writing.add_done_callback(lambda _: self._written(size))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(self._abandon_written)
            raise

    def release(self, references: Sequence[PayloadReference]) -> None:
        """Unpin payloads whose frame is settled."""
        self._call_in_thread(self._unpin, references)

    def abandon(self, references: Sequence[PayloadReference]) -> None:
        """Unpin payloads whose frame failed."""
        self._call_in_thread(self._abandon, references)

    async def remove_unused(self, digests: Sequence[bytes]) -> int:
        """Remove those of the payloads that no record refers to, and return how many."""
        return await self._start(self._remove, digests)

    async def abandoned(self) -> set[bytes]:
        """Return the digests that were abandoned since the last call."""
        return await self._start(self._take_abandoned)

    def digests(self) -> Iterator[bytes]:
        """Return the digests of all stored payloads, read from the disk lazily."""
        return self._store.digests()

    def close(self) -> None:
        """Finish what the thread was asked to do, and stop it."""
        self._is_closed = True
        self._thread.shutdown(wait=True)

    def _start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        return asyncio.wrap_future(self._thread.submit(call, *args, **kwargs))

    def _call_in_thread(
        self, call: Callable[[Sequence[PayloadReference]], None], references: Sequence[PayloadReference]
    ) -> None:
        # Pins end with the broker, and the first sweep after the next start checks all payloads.
        if references and not self._is_closed:
            self._thread.submit(call, references)

    def _write_waiting(self) -> None:
        group: list[_WaitingContents] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        if not group:
            return
        try:
            written = self._write([content for waiting in group for content in waiting.contents])
        except BaseException as error:  # noqa: BLE001  those who wait must get the error
            for waiting in group:
                waiting.written.set_exception(error.afresh() if isinstance(error, TailraceError) else error)
            return
        first = 0
        for waiting in group:
            end = first + len(waiting.contents)
            waiting.written.set_result(written[first:end])
            first = end

    def _write(self, contents: Sequence[bytes]) -> list[PayloadReference]:
        references = [reference_to(content) for content in contents]
        self._pins.update(reference.digest for reference in references)
        try:
            new = self._store.put(dict(zip(references, contents, strict=True)))
        except BaseException:
            self._abandon(references)
            raise
        self.stored += len(new)
        self.stored_bytes += sum(reference.size for reference in new)
        self.found += len(references) - len(new)
        return references

    def _written(self, size: int) -> None:
        self.pending_bytes -= size

    def _abandon_written(self, writing: "asyncio.Future[list[PayloadReference]]") -> None:
        """Abandon payloads whose publish was cancelled while they were written."""
        if not writing.cancelled() and writing.exception() is None:
            self.abandon(writing.result())

    def _unpin(self, references: Sequence[PayloadReference]) -> None:
        for reference in references:
            self._pins[reference.digest] -= 1
            if not self._pins[reference.digest]:
                del self._pins[reference.digest]

    def _abandon(self, references: Sequence[PayloadReference]) -> None:
        self._unpin(references)
        self._abandoned.update(reference.digest for reference in references)

    def _take_abandoned(self) -> set[bytes]:
        taken, self._abandoned = self._abandoned, set()
        return taken

    def _remove(self, digests: Iterable[bytes]) -> int:
        unused = [digest for digest in digests if digest not in self._pins and not self._references.has_any(digest)]
        removed = self._store.remove(unused)
        self.removed += removed
        return removed


class _WaitingContents(NamedTuple):
    """Contents of one publish that wait to be written."""

    contents: Sequence[bytes]
    written: "Future[list[PayloadReference]]"


class PayloadSweep:
    """A background job that removes payloads which no record refers to.

    First the references of deleted records are deleted, in commits of their own. Their payloads are checked one sweep later: by
    then even a store that answers before it syncs has synced, and readers of such records are done. The first sweep after the
    start checks all payloads, and so finds what a killed process left behind.
    """

    def __init__(self, committer: Committer, threads: ReadThreads, references: PayloadReferences, payloads: Payloads) -> None:
        self._committer = committer
        self._threads = threads
        self._references = references
        self._payloads = payloads
        self._candidates: set[bytes] = set()
        """Digests that lost a reference, or never got one: candidates for removal."""
        self._checks_all = True
        """Whether all payloads are candidates."""
        self._compacted: set[PartitionId] | None = None
        """Partitions that have lost records by compaction. Not known before the first sweep."""

    def compacted(self, partition: PartitionId) -> None:
        """Have the next sweep look for payloads of records that compaction has removed from the partition."""
        if self._compacted is not None:
            self._compacted.add(partition)

    async def run_once(self) -> int:
        """Remove unused payloads and return how many."""
        candidates = iter(self._candidates | await self._payloads.abandoned())
        if self._checks_all:
            candidates = self._payloads.digests()
        self._candidates, self._checks_all = set(), False
        try:
            removed = await self._remove(candidates)
            await self._delete_old_references()
            await self._delete_compacted_references()
        except BaseException:
            self._checks_all = True
            raise
        return removed

    async def _remove(self, candidates: Iterator[bytes]) -> int:
        removed = 0
        while some := await self._threads.run(lambda: list(islice(candidates, _REMOVED_AT_ONCE))):
            removed += await self._payloads.remove_unused(some)
        return removed

    async def _delete_old_references(self) -> None:
        """Delete the references of deleted records."""
        while True:
            deleted = await self._threads.run(self._references.of_deleted_records, _FORGOTTEN_AT_ONCE)
            if not deleted:
                return
            await self._delete_references(deleted)
            if len(deleted) < _FORGOTTEN_AT_ONCE:
                return

    async def _delete_compacted_references(self) -> None:
        """Delete the references of records that compaction has removed."""
        partitions, self._compacted = self._compacted, set()
        if partitions is None:
            partitions = set(await self._threads.run(self._references.referring_partitions))
        while partitions:
            partition = partitions.pop()
            try:
                deleted = await self._threads.run(self._references.of_compacted_records, partition, _FORGOTTEN_AT_ONCE)
                if deleted:
                    await self._delete_references(deleted)
            except BaseException:
                self._compacted |= {partition, *partitions}
                raise
            if len(deleted) == _FORGOTTEN_AT_ONCE:
                partitions.add(partition)

    async def _delete_references(self, deleted: Sequence[PayloadUse]) -> None:
        # Offsets and topic ids are never used again, so a record that was found deleted stays deleted.
        changes = Changes(puts=tuple((key, None) for use in deleted for key in use.state_keys))
        await self._committer.submit(Change(lambda: changes, lambda _: None))
        killpoint("payload.forgotten")
        if len(self._candidates) < _MOST_REMEMBERED:
            self._candidates.update(use.reference.digest for use in deleted)
        else:
            self._checks_all = True
