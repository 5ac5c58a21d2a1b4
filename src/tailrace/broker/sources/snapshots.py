"""Snapshots of sources: which tables are being read, where transactions are held meanwhile, and who reads which chunk.

A snapshot is state in the log, so that nothing which was held is forgotten. Its chunks are not: they can be read only in a
session of the database that the capture keeps open, so the capture offers them anew after a restart. Chunks are claimed by
Spark's tasks and, while no pipeline runs, by the capture itself. Whoever reads a chunk stages its rows; the capture publishes
them. A chunk that is read twice is published once.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.pipelines.staged_chunks import read_mark
from tailrace.broker.sources.sources import Sources
from tailrace.broker.topics.topics import Puts, Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import UnknownSourceError
from tailrace.model.ids import PartitionId, SourceId, TableId
from tailrace.model.limits import Limits
from tailrace.model.names import topic_form
from tailrace.model.source import HELD, HELD_PREFIX, Source, SourceSnapshot, SourceTable
from tailrace.model.topic import Topic, TopicOptions
from tailrace.store.contract import Store

SourceSnapshotState = Literal["waiting", "reading", "releasing"]

_SPARK_SECONDS = 10.0
"""How long a pipeline counts as running after it has asked for work."""
_SPARK_PAUSE_SECONDS = 60.0
"""How long the capture reads itself after Spark's tasks have failed."""


_MAX_STAGED = 8
"""Chunks of a source that wait to be published. No more are read meanwhile, so that staging stays small."""


class SnapshotChunk(NamedTuple):
    """A part of a table."""

    number: int
    table: SourceTable
    query: str
    """The COPY that returns its rows."""
    oid: int
    """The number of the table, or of the partition, in the database."""


class ChunkOffer(NamedTuple):
    """Chunks that can be read in one snapshot of the database."""

    name: str
    """Unique."""
    snapshot: str
    """The name under which the database exports the snapshot."""
    lsn: int
    time_us: int
    chunks: Sequence[SnapshotChunk]


class ClaimedChunk(NamedTuple):
    source: Source
    offer: ChunkOffer
    chunk: SnapshotChunk


class StagedRows(NamedTuple):
    """What was read of a chunk and waits to be published."""

    number: int
    stage: str
    parts: int
    rows: int


class ChunkClaim(NamedTuple):
    chunk: ClaimedChunk | None
    is_later: bool
    """Whether there may be one in a moment, because what was read waits to be published."""


class OfferProgress(NamedTuple):
    staged: Sequence[StagedRows]
    """Chunks that were staged and not published."""
    is_read_by_spark: bool
    error: str | None
    """Why the last chunk that failed did."""
    is_stale: bool
    """Whether a chunk can't be read in this snapshot any more."""


class SourceSnapshots:
    """Used on the event loop."""

    def __init__(
        self, store: Store, committer: Committer, topics: Topics, sources: Sources, clock: Clock, limits: Limits
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._permissions = topics.permissions
        self._sources = sources
        self._clock = clock
        self._limits = limits
        self._running: dict[SourceId, SourceSnapshot] = {}
        self._offers: dict[SourceId, _Offer] = {}
        self._spark_seen_at = float("-inf")
        self._spark_failed_at = float("-inf")

    def load(self) -> None:
        for key, value in self._store.range(keys.SOURCE_SNAPSHOTS):
            self._running[keys.source_of_snapshot(key)] = msgspec.msgpack.decode(value, type=SourceSnapshot)

    def find(self, source: Source) -> SourceSnapshot | None:
        """Return the snapshot that is being read of a source."""
        return self._running.get(source.id)

    def state(self, source: Source) -> SourceSnapshotState | None:
        """Return how far the snapshot of a source is; `None` if there is none."""
        found = self.find(source)
        if found is None:
            return "waiting" if source.wanted or source.resync else None
        return "releasing" if found.is_read else "reading"

    def released(self, source: Source) -> int:
        """Return the offset up to which held transactions were released."""
        return max(0, read_mark(self._store.get(keys.mark_key(source.writer, HELD))))

    def empty_tables(self, source: Source) -> list[TableId]:
        """Return the tables of a source that have no changes in the log yet."""
        return [table.id for table in self._sources.tables_of(source) if not self._has_changes(table)]

    def _has_changes(self, table: SourceTable) -> bool:
        return self._store.next_offset(PartitionId(table.table.changes, 0)) > 0

    async def begin(
        self, source: Source, tables: Sequence[TableId], wanted: Sequence[str], *, holds_all: bool
    ) -> SourceSnapshot:
        """Begin a snapshot of these tables, if none is being read. From then on their transactions can be held.

        `wanted` are the patterns that it satisfies.
        """
        found = self.find(source)
        if found is not None:
            return found
        begun: list[tuple[SourceSnapshot, Source]] = []
        by_id = {table.id: table for table in self._sources.tables_of(source)}

        def state(topic: Topic) -> Puts:
            known = tuple(table for table in tables if self._has_changes(by_id[table]))
            snapshot = SourceSnapshot(tables=tuple(tables), known=known, held=topic.id, holds_all=holds_all)
            now = self._sources.get(source.name)
            rest = tuple(pattern for pattern in now.wanted if pattern not in wanted)
            begun[:] = [(snapshot, msgspec.structs.replace(now, wanted=rest))]
            return (
                (keys.source_snapshot_key(source.id), msgspec.msgpack.encode(snapshot)),
                (keys.source_key(source.id), msgspec.msgpack.encode(begun[0][1])),
            )

        options = TopicOptions(max_message_bytes=self._limits.largest_batch_bytes)
        await self._topics.create_reserved(HELD_PREFIX + topic_form(source.name), options=options, state=state)
        ((snapshot, altered),) = begun
        self._running[source.id] = snapshot
        self._sources.replaced(altered)
        return snapshot

    async def finish_table(self, source: Source, table: TableId, lsn: int) -> SourceSnapshot:
        """Note that all rows that a table has at the LSN are in the log."""
        now: SourceSnapshot

        def decide() -> Changes:
            nonlocal now
            stored = self._store.latest(keys.source_snapshot_key(source.id))
            if stored is None:
                raise UnknownSourceError(f"no snapshot of source {source.name!r} is being read")
            found = msgspec.msgpack.decode(stored, type=SourceSnapshot)
            now = msgspec.structs.replace(found, done={**found.done, table: lsn})
            return Changes(puts=((keys.source_snapshot_key(source.id), msgspec.msgpack.encode(now)),))

        def settled(_: CommitReceipt | None) -> SourceSnapshot:
            self._running[source.id] = now
            return now

        return await self._committer.submit(Change(decide, settled))

    async def end(self, source: Source) -> None:
        """End a snapshot, whose held transactions were all released."""
        found = self.find(source)
        self._withdraw(source)
        if found is None:
            return
        marks = [
            keys.mark_key(source.writer, HELD),
            *(key for key, _ in self._store.range(keys.marks_of(source.snapshot_writer))),
        ]
        state = ((keys.source_snapshot_key(source.id), None), *((mark, None) for mark in marks))
        live = self._topics.by_id(found.held)
        if live is None:
            await self._committer.submit(Change(lambda: Changes(puts=state), lambda _: None))
        else:
            await self._topics.delete_reserved(live.topic.name, state=state)
        self._running.pop(source.id, None)

    def _require(self, source_name: str | None) -> None:
        """Check the right to read chunks: that of the router, or for one source that to change it."""
        if source_name is None or not self._permissions.may("alter", "source", source_name):
            self._permissions.require("cluster_action", "cluster")

    def offer(self, source: Source, offer: ChunkOffer) -> None:
        """Let chunks be read. Those that were offered before are not any more."""
        self._withdraw(source)
        self._offers[source.id] = _Offer(source, offer)

    def note_pipeline(self) -> int:
        """Note that a pipeline is there, and return how many chunks wait to be read by it. Needs `cluster_action`."""
        self._permissions.require("cluster_action", "cluster")
        self._spark_seen_at = self._clock.monotonic()
        if not self._is_read_by_spark():
            return 0
        return sum(1 for offer in self._offers.values() for _ in offer.free(self._clock.monotonic()))

    def claim(self, worker: str, source_name: str | None, *, is_spark: bool) -> ChunkClaim:
        """Return a chunk that nobody else reads now, if there is one."""
        self._require(source_name)
        now = self._clock.monotonic()
        if is_spark:
            self._spark_seen_at = now
        is_later = False
        for offer in self._offers.values():
            free = offer.free(now, are_tasks_alive=self._is_spark_alive()) if source_name in (None, offer.source.name) else ()
            for chunk in free:
                if len(offer.staged) >= _MAX_STAGED:
                    is_later = True
                    break
                chunk.claim(now + self._limits.snapshot_claim_seconds, is_spark=is_spark)
                return ChunkClaim(ClaimedChunk(offer.source, offer.offer, chunk.chunk), False)
        return ChunkClaim(None, is_later)

    def staged(self, source_name: str, offer_name: str, rows: StagedRows) -> bool:
        """Take what was staged of a chunk. Return false if it is not needed: somebody else was faster, or it is over."""
        self._require(source_name)
        offer = self._find_offer(source_name, offer_name)
        if offer is None or rows.number >= len(offer.chunks) or offer.chunks[rows.number].is_read:
            return False
        offer.chunks[rows.number].is_read = True
        offer.staged[rows.number] = rows
        offer.changed.set()
        return True

    def failed(self, source_name: str, offer_name: str, number: int, error: str, *, is_stale: bool) -> None:
        """Note that a chunk could not be read. Another one tries it."""
        self._require(source_name)
        offer = self._find_offer(source_name, offer_name)
        if offer is None or number >= len(offer.chunks):
            return
        offer.is_stale |= is_stale
        if offer.chunks[number].is_claimed_by_spark and not is_stale:
            self._spark_failed_at = self._clock.monotonic()
        offer.chunks[number].claimed_until = float("-inf")
        offer.error = error
        offer.changed.set()

    async def progress(
        self, source: Source, offer_name: str, published: Sequence[int], wait_seconds: float
    ) -> OfferProgress | None:
        """Return what was staged, without what was published; waits for more. `None` if the server was started again since
        the chunks were offered."""
        offer = self._find_offer(source.name, offer_name)
        if offer is None:
            return None
        for number in published:
            offer.staged.pop(number, None)
        if not offer.staged and not offer.is_stale:
            offer.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(offer.changed.wait(), wait_seconds)
        return OfferProgress(list(offer.staged.values()), self._is_read_by_spark(), offer.error, offer.is_stale)

    def _withdraw(self, source: Source) -> None:
        offer = self._offers.pop(source.id, None)
        if offer is not None:
            offer.changed.set()

    def _find_offer(self, source_name: str, offer_name: str) -> "_Offer | None":
        source = self._sources.find(source_name)
        offer = None if source is None else self._offers.get(source.id)
        return offer if offer is not None and offer.offer.name == offer_name else None

    def _is_spark_alive(self) -> bool:
        return self._clock.monotonic() - self._spark_seen_at < _SPARK_SECONDS

    def _is_read_by_spark(self) -> bool:
        has_failed = self._clock.monotonic() - self._spark_failed_at < _SPARK_PAUSE_SECONDS
        return self._is_spark_alive() and not has_failed


class _Offer:
    def __init__(self, source: Source, offer: ChunkOffer) -> None:
        self.source = source
        self.offer = offer
        self.chunks = [_Chunk(chunk) for chunk in offer.chunks]
        self.staged: dict[int, StagedRows] = {}
        self.error: str | None = None
        self.is_stale = False
        self.changed = asyncio.Event()

    def free(self, now: float, *, are_tasks_alive: bool = True) -> "Iterator[_Chunk]":
        for chunk in self.chunks:
            is_claimed = chunk.claimed_until > now and (are_tasks_alive or not chunk.is_claimed_by_spark)
            if not chunk.is_read and not is_claimed:
                yield chunk


class _Chunk:
    __slots__ = ("chunk", "claimed_until", "is_claimed_by_spark", "is_read")

    def __init__(self, chunk: SnapshotChunk) -> None:
        self.chunk = chunk
        self.claimed_until = float("-inf")
        self.is_claimed_by_spark = False
        self.is_read = False

    def claim(self, until: float, *, is_spark: bool) -> None:
        self.claimed_until = until
        self.is_claimed_by_spark = is_spark
