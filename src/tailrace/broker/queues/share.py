"""The next few records of a share, decoded before they are asked for.

A consumer that takes one record at a time would else have its batch decoded from the beginning for each of them. What is kept
here was handed to nobody; it is small, and thrown away when the share has gone on elsewhere.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, Proposal
from tailrace.broker.queues.dead_letters import DeadLetterTopics
from tailrace.broker.queues.state import OpenRecord, ShareState
from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import UnknownGroupError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import KIB
from tailrace.model.record import Record
from tailrace.store.contract import Store

RECORDS_AHEAD = 100
_BYTES_AHEAD = 64 * KIB


class NextRecords(NamedTuple):
    records: Sequence[Record]
    end: Offset
    """Where to go on; what lies before it and is not among the records is nobody's."""


class ReadAhead:
    def __init__(self) -> None:
        self._start = self._end = Offset(0)
        self._records: deque[Record] = deque()

    def keep(self, start: Offset, records: Sequence[Record], end: Offset) -> None:
        """All that was read from `start` up to `end`."""
        self._start = start
        self._records = deque(records)
        self._end = end

    def take(self, start: Offset, most: int) -> NextRecords | None:
        """Up to so many records from here on; `None` if this is not where they begin."""
        if start != self._start or start == self._end:
            return None
        taken = [self._records.popleft() for _ in range(min(most, len(self._records)))]
        self._start = Offset(taken[-1].offset + 1) if self._records else self._end
        self._bound()
        return NextRecords(taken, self._start)

    def _bound(self) -> None:
        size = 0
        for number, record in enumerate(self._records):
            size += len(record.value or b"") + len(record.key or b"")
            if size > _BYTES_AHEAD or number == RECORDS_AHEAD:
                self._end = Offset(self._start if number == 0 else self._records[number - 1].offset + 1)
                self._records = deque(list(self._records)[:number])
                return


OnWritten = Callable[["Share", Sequence[OpenRecord]], None]
"""Called with records that are done, or with those that were not done after all."""


class Share:
    def __init__(
        self,
        group: str,
        partition: PartitionId,
        state: ShareState,
        store: Store,
        committer: Committer,
        dead_letters: DeadLetterTopics,
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

    def __init__(self, share: Share, key: bytes, store: Store, dead_letters: DeadLetterTopics) -> None:
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

    def settled(self, receipt: CommitReceipt | None) -> None:
        for append in self._appends:
            self._dead_letters.arrived(append)


def _look_at(written: "asyncio.Future[None]") -> None:
    if not written.cancelled():
        written.exception()
