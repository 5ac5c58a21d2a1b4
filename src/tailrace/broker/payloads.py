"""Which records refer to which payloads, as state in the store.

Each reference is two keys, put in the frame of the record: one by record, in the order of offsets, so that references of
records that are gone are a range; and one by payload, so that a look tells whether anybody refers to it. They go after their
record has gone, and the payload after them.
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
from tailrace.store.contract import PayloadStore, Store

_REFERENCE = Struct(f">{DIGEST_BYTES}sQ")
_READ_AT_ONCE = 1_000


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
    """May be called from any thread; sees what is settled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions: set[PartitionId] = set()

    def load(self) -> None:
        self._partitions.update(self._referring_partitions())

    def may_be_in(self, partition: PartitionId) -> bool:
        """Whether the partition may hold references. Where not, its batches need not be looked at."""
        return partition in self._partitions

    def forget_partition(self, partition: PartitionId) -> None:
        """The partition is gone. What it referred to is found by the sweep."""
        self._partitions.discard(partition)

    def add(self, draft: Draft, use: PayloadUse) -> None:
        # Before the record can be read by anybody.
        self._partitions.add(use.partition)
        by_record, by_payload = use.state_keys
        draft.put(by_record, _REFERENCE.pack(*use.reference))
        draft.put(by_payload, b"")

    def are_there(self, digest: bytes) -> bool:
        """Whether any record refers to the payload."""
        return bool(self._store.range(keys.payload_uses(digest), limit=1))

    def of_gone_records(self, most: int) -> list[PayloadUse]:
        """References of records that were trimmed away or whose topic was deleted: so many, or all that there are."""
        found: list[PayloadUse] = []
        for partition in self._referring_partitions():
            found += self._below(partition, self._start_of(partition), most - len(found))
            if len(found) == most:
                break
        return found

    def sizes(self, partition: PartitionId) -> Iterator[tuple[Offset, int]]:
        """Offsets of a partition that refer to payloads, and the payloads' sizes, in order."""
        prefix = keys.payloads_of_partition(partition)
        start = b""
        while True:
            found = self._store.range(prefix, start, _READ_AT_ONCE)
            for key, value in found:
                use = _use(key, value)
                yield use.offset, use.reference.size
            if len(found) < _READ_AT_ONCE:
                return
            start = found[-1][0][len(prefix) :] + b"\0"

    def _referring_partitions(self) -> Iterator[PartitionId]:
        """Found by one look for each."""
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
        """`None` when the partition is gone."""
        try:
            return self._store.bounds(partition).start
        except UnknownPartitionError:
            return None


def _use(key: bytes, value: bytes) -> PayloadUse:
    partition, offset = keys.read_payload_key(key)
    return PayloadUse(partition, offset, PayloadReference._make(_REFERENCE.unpack(value)))


P = ParamSpec("P")
T = TypeVar("T")


class Payloads:
    def __init__(self, store: PayloadStore, references: PayloadReferences, limits: Limits) -> None:
        self._store = store
        self._references = references
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, "tailrace-payloads")
        self._waiting: deque[_Waiting] = deque()
        self._pins: Counter[bytes] = Counter()
        self._abandoned: set[bytes] = set()
        self._is_closed = False
        self.pending_bytes = 0
        """Bytes of values that are being written or wait for that."""
        self.stored = 0
        self.stored_bytes = 0
        self.found = 0
        """Values that were there already."""
        self.removed = 0

    def is_large(self, value: bytes | None) -> bool:
        """Whether the value is kept beside the log."""
        return value is not None and len(value) > self._limits.payload_inline_bytes

    async def keep(self, contents: Sequence[bytes]) -> list[PayloadReference]:
        """Make the contents durable and pin them. What is returned is to be released or abandoned, whatever happens then."""
        if self._is_closed:
            raise StoreClosedError("the broker is closing and takes nothing new")
        size = sum(map(len, contents))
        if self.pending_bytes and self.pending_bytes + size > self._limits.pending_payload_bytes:
            raise OverloadedError(
                f"{self.pending_bytes} bytes of payloads wait to be written and {size} more would be over"
                f" pending_payload_bytes ({self._limits.pending_payload_bytes}); try again after a pause"
            )
        self.pending_bytes += size
        kept: Future[list[PayloadReference]] = Future()
        self._waiting.append(_Waiting(contents, kept))
        # The first to run takes all that wait by then, and they share a sync of the folder; the others find nothing to do.
        self._thread.submit(self._keep_waiting)
        keeping = asyncio.wrap_future(kept)
        keeping.add_done_callback(lambda _: self._kept(size))
        try:
            return await asyncio.shield(keeping)
        except asyncio.CancelledError:
            keeping.add_done_callback(self._abandon_kept)
            raise

    def release(self, references: Sequence[PayloadReference]) -> None:
        """The frame that refers to them is settled."""
        self._tell(self._unpin, references)

    def abandon(self, references: Sequence[PayloadReference]) -> None:
        """The frame that should refer to them came to nothing."""
        self._tell(self._abandon, references)

    async def remove_unused(self, digests: Sequence[bytes]) -> int:
        """Remove those that nobody refers to; how many that were."""
        return await self._start(self._remove, digests)

    async def abandoned(self) -> set[bytes]:
        """Digests that were abandoned since the last call."""
        return await self._start(self._take_abandoned)

    def digests(self) -> Iterator[bytes]:
        """Of all payloads that there are, read from the disk as they are asked for."""
        return self._store.digests()

    def close(self) -> None:
        self._is_closed = True
        self._thread.shutdown(wait=True)

    def _start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        return asyncio.wrap_future(self._thread.submit(call, *args, **kwargs))

    def _tell(self, call: Callable[[Sequence[PayloadReference]], None], references: Sequence[PayloadReference]) -> None:
        # Pins end with the broker, and the first sweep of the next one looks at everything.
        if references and not self._is_closed:
            self._thread.submit(call, references)

    def _keep_waiting(self) -> None:
        group: list[_Waiting] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        if not group:
            return
        try:
            kept = self._keep([content for waiting in group for content in waiting.contents])
        except BaseException as error:  # noqa: BLE001  whoever waits for it must hear of it
            for waiting in group:
                waiting.kept.set_exception(error.afresh() if isinstance(error, TailraceError) else error)
            return
        first = 0
        for waiting in group:
            end = first + len(waiting.contents)
            waiting.kept.set_result(kept[first:end])
            first = end

    def _keep(self, contents: Sequence[bytes]) -> list[PayloadReference]:
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

    def _kept(self, size: int) -> None:
        self.pending_bytes -= size

    def _abandon_kept(self, keeping: "asyncio.Future[list[PayloadReference]]") -> None:
        """Nobody waits for them any more, and nobody will refer to them."""
        if not keeping.cancelled() and keeping.exception() is None:
            self.abandon(keeping.result())

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
        unused = [digest for digest in digests if digest not in self._pins and not self._references.are_there(digest)]
        removed = self._store.remove(unused)
        self.removed += removed
        return removed


class _Waiting(NamedTuple):
    """Contents of one publish, until they are kept."""

    contents: Sequence[bytes]
    kept: "Future[list[PayloadReference]]"


_FORGOTTEN_AT_ONCE = 1_000
_REMOVED_AT_ONCE = 50
"""Publishers with large values wait for so many at most."""
_MOST_REMEMBERED = 100_000


class PayloadSweep:
    def __init__(self, committer: Committer, threads: ReadThreads, references: PayloadReferences, payloads: Payloads) -> None:
        self._committer = committer
        self._threads = threads
        self._references = references
        self._payloads = payloads
        self._suspects: set[bytes] = set()
        """Digests that lost a reference, or never got one."""
        self._suspects_all = True
        """Not known which, so all are to be looked at."""

    async def run_once(self) -> int:
        """Remove what is due and say how many payloads went."""
        suspects = iter(self._suspects | await self._payloads.abandoned())
        if self._suspects_all:
            suspects = self._payloads.digests()
        self._suspects, self._suspects_all = set(), False
        try:
            removed = await self._remove(suspects)
            await self._forget()
        except BaseException:
            self._suspects_all = True
            raise
        return removed

    async def _remove(self, suspects: Iterator[bytes]) -> int:
        removed = 0
        while some := await self._threads.run(lambda: list(islice(suspects, _REMOVED_AT_ONCE))):
            removed += await self._payloads.remove_unused(some)
        return removed

    async def _forget(self) -> None:
        """Forget references of records that are gone."""
        while True:
            gone = await self._threads.run(self._references.of_gone_records, _FORGOTTEN_AT_ONCE)
            if not gone:
                return
            await self._forget_these(gone)
            if len(gone) < _FORGOTTEN_AT_ONCE:
                return

    async def _forget_these(self, gone: Sequence[PayloadUse]) -> None:
        # Offsets and topic ids are never used again, so what was gone when it was looked for is gone for ever.
        changes = Changes(puts=tuple((key, None) for use in gone for key in use.state_keys))
        await self._committer.submit(Change(lambda: changes, lambda _: None))
        killpoint("payload.forgotten")
        if len(self._suspects) < _MOST_REMEMBERED:
            self._suspects.update(use.reference.digest for use in gone)
        else:
            self._suspects_all = True
