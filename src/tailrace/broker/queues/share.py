"""A share: one queue in one partition, with its state, the records read ahead, and the writes of the state.

One write is in flight at a time. What changes meanwhile goes into the next write, so that a hundred acknowledgements of single
records that arrive together cost two writes. If a write fails, the records it held return to their earlier state and everyone
who waits for it gets the error.

A share is what Kafka's share groups (KIP-932) call a share-partition.
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

OnWritten = Callable[["Share", Sequence[OpenRecord]], None]
"""Called with the records that a write held, after it has succeeded or after it has failed."""

READ_AHEAD_RECORDS = 100
_READ_AHEAD_BYTES = 64 * KIB


class Share:
    def __init__(
        self,
        group: str,
        partition: PartitionId,
        state: ShareState,
        store: Store,
        committer: Committer,
        dead_letters: DeadLetterTopics,
        on_written: OnWritten,
        on_failed: OnWritten,
    ) -> None:
        self.group = group
        self.partition = partition
        self.state = state
        self.lock = asyncio.Lock()
        """Held while records are read to be delivered."""
        self.pending_dead_letters: dict[Offset, str] = {}
        """Records that are about to become dead letters, with the cause."""
        self.read_ahead = ReadAhead()
        self.is_gone = False
        self._key = keys.share_key(partition, group)
        self._store = store
        self._committer = committer
        self._dead_letters = dead_letters
        self._on_written = on_written
        self._on_failed = on_failed
        self._next: asyncio.Future[None] | None = None
        self._is_writing = False

    def write(self) -> "asyncio.Future[None]":
        """Return a future that is done when the present state is durable. It is shared and must not be cancelled."""
        if self._next is None:
            self._next = self._committer.loop.create_future()
            # A write that nobody awaits may fail without a warning: the next write holds the same state.
            self._next.add_done_callback(_retrieve_exception)
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
            self._on_written(self, records)
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
        self.records = share.state.terminal()
        self._encoded = share.state.encode()
        self._letters = [record.letter for record in self.records if record.letter is not None]
        self._appends: Sequence[Append] = ()

    @property
    def held_bytes(self) -> int:
        return len(self._encoded) + sum(len(letter.value or b"") + len(letter.key or b"") for letter in self._letters)

    def decide(self) -> Changes | None:
        share = self._share
        if share.is_gone or not self._dead_letters.has_source(share.partition):
            raise UnknownGroupError(f"the group {share.group!r} or its topic was deleted")
        draft = Draft(self._store)
        if self._letters:
            self._appends = self._dead_letters.append(draft, share.partition, self._letters)
        draft.put(self._key, self._encoded)
        return draft.changes()

    def settled(self, receipt: CommitReceipt | None) -> None:
        for append in self._appends:
            self._dead_letters.appended(append)


class NextRecords(NamedTuple):
    records: Sequence[Record]
    end: Offset
    """Where to continue. Offsets below it that are not among the records hold nothing to deliver."""


class ReadAhead:
    """The next few records of a share, decoded before they are asked for.

    Without it, a consumer that receives one record at a time would have the batch decoded from its beginning for each of them.
    These records were delivered to nobody; they are bounded, and dropped when the share continues elsewhere.
    """

    def __init__(self) -> None:
        self._start = self._end = Offset(0)
        self._records: deque[Record] = deque()

    def keep(self, start: Offset, records: Sequence[Record], end: Offset) -> None:
        """Keep all records that were read from `start` up to `end`."""
        self._start = start
        self._records = deque(records)
        self._end = end

    def take(self, start: Offset, most: int) -> NextRecords | None:
        """Return the records from `start` on, up to `most`; `None` if the kept ones begin elsewhere."""
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
            if size > _READ_AHEAD_BYTES or number == READ_AHEAD_RECORDS:
                self._end = Offset(self._start if number == 0 else self._records[number - 1].offset + 1)
                self._records = deque(list(self._records)[:number])
                return


def _retrieve_exception(written: "asyncio.Future[None]") -> None:
    if not written.cancelled():
        written.exception()
