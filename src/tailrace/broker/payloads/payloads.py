"""Large values on their way to where they are kept, and away from there.

A value is durable before the frame that refers to it is submitted. From before it is looked for until its frame is settled
it is pinned, so that it is not removed in between. Writing, pinning and removing are done by one thread, one after another:
what one of them has found holds until it is done. When a publish fails, its payloads are abandoned: somebody else may
refer to them or nobody, and the sweep finds out.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, ParamSpec, TypeVar

from tailrace.broker.payloads.references import PayloadReferences
from tailrace.model.errors import OverloadedError, StoreClosedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.record import PayloadReference, reference_to
from tailrace.store.contract import PayloadStore

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
