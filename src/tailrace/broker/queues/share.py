"""One group in one partition, in service: its state, and the writing of it.

One write is on its way at a time. What is decided meanwhile goes into the next, so a hundred acks of single records that come
together cost two writes. If a write fails, what it held is as it was before, and whoever waits for it is told.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.broker import keys
from tailrace.broker.commits.commit import Committer
from tailrace.broker.commits.draft import Draft
from tailrace.broker.commits.proposal import Proposal
from tailrace.broker.queues.dead_letters import DeadLetters
from tailrace.broker.queues.read_ahead import ReadAhead
from tailrace.broker.queues.state import OpenRecord, ShareState
from tailrace.model.changes import Append, Changes, Receipt
from tailrace.model.errors import UnknownGroupError
from tailrace.model.ids import Offset, Partition
from tailrace.store.contract import Store

OnWritten = Callable[["Share", Sequence[OpenRecord]], None]
"""Called with records that are done, or with those that were not done after all."""


class Share:
    def __init__(
        self,
        group: str,
        partition: Partition,
        state: ShareState,
        store: Store,
        committer: Committer,
        dead_letters: DeadLetters,
        on_done: OnWritten,
        on_failed: OnWritten,
    ) -> None:
        self.group = group
        self.partition = partition
        self.state = state
        self.lock = asyncio.Lock()
        """Held while records are read to be handed out."""
        self.doomed: dict[Offset, str] = {}
        """Records on their way to the dead letters, and why."""
        self.ahead = ReadAhead()
        self.is_gone = False
        self._key = keys.share_key(partition, group)
        self._store = store
        self._committer = committer
        self._dead_letters = dead_letters
        self._on_done = on_done
        self._on_failed = on_failed
        self._next: asyncio.Future[None] | None = None
        self._is_writing = False

    def write(self) -> "asyncio.Future[None]":
        """Done when all that is decided by now is durable. Not to be cancelled: others wait for it too."""
        if self._next is None:
            self._next = self._committer.loop.create_future()
            # Whoever is interested awaits it; a write that nobody awaits may fail, and the next one holds the same.
            self._next.add_done_callback(_look_at)
        written = self._next
        if not self._is_writing:
            self._begin()
        return written

    def _begin(self) -> None:
        written, self._next = self._next, None
        self._is_writing = True
        write = _WriteShare(self, self._key, self._store, self._dead_letters)
        self._committer.submit(write).add_done_callback(partial(self._ended, write.records, written))

    def _ended(
        self, records: Sequence[OpenRecord], written: "asyncio.Future[None] | None", outcome: "asyncio.Future[None]"
    ) -> None:
        self._is_writing = False
        error = asyncio.CancelledError() if outcome.cancelled() else outcome.exception()
        if error is None:
            self.state.drop(record.offset for record in records)
            self._on_done(self, records)
        else:
            self._on_failed(self, records)
        if written is not None and not written.done():
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)
        if self._next is not None and not self._is_writing:
            self._begin()


class _WriteShare(Proposal[None]):
    __slots__ = ("_appends", "_dead_letters", "_encoded", "_key", "_letters", "_share", "_store", "records")

    def __init__(self, share: Share, key: bytes, store: Store, dead_letters: DeadLetters) -> None:
        self._share = share
        self._key = key
        self._store = store
        self._dead_letters = dead_letters
        self.records = share.state.decided()
        self._encoded = share.state.encode()
        self._letters = [record.letter for record in self.records if record.letter is not None]
        self._appends: Sequence[Append] = ()

    @property
    def held_bytes(self) -> int:
        return len(self._encoded) + sum(len(letter.value or b"") + len(letter.key or b"") for letter in self._letters)

    def decide(self) -> Changes | None:
        share = self._share
        if share.is_gone or not self._dead_letters.has_origin(share.partition):
            raise UnknownGroupError(f"the group {share.group!r} or its topic was deleted")
        draft = Draft(self._store)
        if self._letters:
            self._appends = self._dead_letters.append(draft, share.partition, self._letters)
        draft.put(self._key, self._encoded)
        return draft.changes()

    def settled(self, receipt: Receipt | None) -> None:
        for append in self._appends:
            self._dead_letters.arrived(append)


def _look_at(written: "asyncio.Future[None]") -> None:
    if not written.cancelled():
        written.exception()
