"""The contract of storage, which is all that the broker sees of it.

A store is one ordered log of commits and an ordered map of state, with two views. The **latest** view includes commits that
are sequenced but not yet durable; rules decide on it, so that requests in flight see each other. The **settled** view holds
only what has been answered; readers see it. If a commit fails, all commits sequenced after it fail, too, and the latest view
falls back to the settled one.

All methods may be called from any thread. `submit` never blocks on the disk; reads may.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tailrace.model.commit import Changes, CommitReceipt, FetchedBatches, OffsetBounds, ScannedBatches
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.record import PayloadReference
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames


class StoreCommit(Protocol):
    """A commit that was submitted. Once `done` was called, either `receipt` counts or `error` is set."""

    changes: Changes
    error: TailraceError | None

    @property
    def receipt(self) -> CommitReceipt:
        """Offsets, cursor and timestamp that the commit has if it succeeds. Tentative until done."""


OnDone = Callable[[StoreCommit], None]
"""Called once for each commit, in commit order, by a thread of the store or by `submit` itself. It must be quick and must not
raise."""


class Staging(Protocol):
    """Holds batches that are not published yet. May be called from any thread.

    They are lost when the server stops, except for stages that were synced and are retained at the next start.
    """

    def write(self, stage: str, part: int, data: bytes) -> None:
        """Store one part of a stage; the same part again replaces it. Raises `LimitExceededError`, `StorageFullError`."""

    def read(self, stage: str, part: int) -> bytes:
        """Return one part of a stage. Raises `InvalidRequestError` if it does not exist."""

    def size(self, stage: str) -> int:
        """Return the bytes of all parts of a stage; 0 if it does not exist."""

    def remove(self, stage: str) -> None:
        """Remove the stage, if it exists."""

    def sync(self, stages: Collection[str]) -> None:
        """Make the stages durable. Raises `StorageFullError` if that fails; then they are gone and have to be staged again."""

    def retain(self, stages: Collection[str]) -> None:
        """Remove all stages of an earlier run but these. Called once, before anything is written."""

    def remove_older_than(self, seconds: float, spared: Collection[str]) -> int:
        """Remove stages that were not published for this long, except the spared ones. Return how many were removed."""


class PayloadStore(Protocol):
    """Stores large values by their hash, each once. It does not know which records refer to them.

    May be called from any thread.
    """

    def put(self, contents: Mapping[PayloadReference, bytes]) -> Sequence[PayloadReference]:
        """Store contents, durably. Return those that did not exist before. Raises `StorageFullError`, `StorageFailedError`."""

    def get(self, reference: PayloadReference) -> bytes:
        """Return a content. Raises `LostPayloadError` if it is missing or is not what was stored."""

    def remove(self, digests: Iterable[bytes]) -> int:
        """Remove those that exist. Return how many that were."""

    def digests(self) -> Iterator[bytes]:
        """Return all digests, in any order. One that is added or removed meanwhile may be among them or not."""


class Store(Protocol):
    """Durable, atomic, ordered storage for one broker."""

    staging: Staging
    payloads: PayloadStore
    topic_names: TopicNames
    """The names of topics, for error messages. The broker keeps them up to date."""

    def submit(self, changes: Changes, done: OnDone) -> StoreCommit:
        """Sequence the commit and start to make it durable.

        Raises, with nothing changed, if the changes are not possible: `UnknownPartitionError`, `SequencingError`,
        `OffsetOutOfRangeError` (a trim beyond the end), `InvalidPartitionsError`, `LimitExceededError`,
        `OverloadedError` (too much in flight), `StorageFullError`, `StoreClosedError`, `StorageFailedError`.
        """

    def commit(self, changes: Changes) -> CommitReceipt:
        """Submit the commit and wait until it is durable. Raises its error if it fails."""

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        """Return whole batches from the one that holds `offset` on: up to `max_bytes`, but at least one; none at the end.

        If compaction has removed that batch, the next one is the first.

        Raises `OffsetOutOfRangeError` below the start and above the end, `CorruptionError` if stored bytes are damaged.
        """

    def is_hot(self, partition: PartitionId, offset: Offset) -> bool:
        """Return whether a fetch from this offset is served from memory."""

    def fetch_cached(
        self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool = True
    ) -> FetchedBatches | None:
        """Return what `fetch` would if that takes little time and no disk; `None` if it may take more, or is an error.

        The event loop calls it where `is_hot` is false. Without `at_least_one` no batch is returned that is larger than
        `max_bytes`. Raises `UnknownPartitionError`.
        """

    def start_reading(self, partition: PartitionId, offset: Offset, max_bytes: int) -> None:
        """Have the disk begin to read what a fetch is going to return: a hint, so that several are read at the same time.

        May read the disk itself, but not the batches. Raises `UnknownPartitionError`.
        """

    def scan(self, cursor: Cursor, max_bytes: int) -> ScannedBatches:
        """Return batches of all partitions in log order from `cursor` on: up to `max_bytes`, but at least one.

        What retention or a deleted topic removed is skipped. `next_cursor` always advances when there is more to read.
        """

    def bounds(self, partition: PartitionId) -> OffsetBounds:
        """Return the settled start and end. Raises `UnknownPartitionError`."""

    def next_offset(self, partition: PartitionId) -> Offset:
        """Return the latest end: the offset that the next append to this partition gets."""

    def end_cursor(self) -> Cursor:
        """Return the settled end of the log: the cursor after the last record that readers can see."""

    def partitions(self) -> Sequence[PartitionId]:
        """Return all settled partitions."""

    def size(self, partition: PartitionId, start: Offset | None = None) -> int:
        """Return the bytes of the batches between start and end, or of those from the one that holds the given offset on."""

    def batch_for_time(self, partition: PartitionId, timestamp_ms: int) -> Offset | None:
        """Return the base offset of the first batch with a record of this timestamp or a later one, by the index."""

    def batches_not_after(self, partition: PartitionId, timestamp_ms: int, within: OffsetBounds) -> Sequence[OffsetBounds]:
        """Return the offsets within the bounds whose batches may hold a record of this timestamp or before, by the index.

        The ranges are in order and apart. They may hold later batches, too, where reading takes less than leaving them out.
        """

    def batch_for_size(self, partition: PartitionId, keep_bytes: int) -> Offset:
        """Return the base offset of the last batch that has at least `keep_bytes` from it to the end, or the start."""

    def compact(
        self, rules: Sequence[CompactionRule], should_stop: Callable[[], bool] | None = None
    ) -> Sequence[CompactionResult]:
        """Remove records that have a later one of the same key, and return what was done in each partition.

        Blocks for as long as that takes; any number of readers and writers may go on meanwhile. The store may leave the newest
        batches alone, and always the last one. What is kept has the offset and the cursor that it had. A batch with fewer
        records still takes all of its offsets; between batches that are left there may be offsets without a batch.

        `should_stop` is asked all the time; when it says so, what is done so far counts and `StoreClosedError` is raised.
        Raises `StoreClosedError`, `StorageFullError`.
        """

    def has_batch(self, partition: PartitionId, offset: Offset) -> bool:
        """Return whether the partition holds the batch that this offset belongs to, by the index."""

    def get(self, key: bytes) -> bytes | None:
        """Return the settled value of a state key."""

    def latest(self, key: bytes) -> bytes | None:
        """Return the latest value of a state key, which includes all sequenced commits."""

    def range(self, prefix: bytes, start: bytes = b"", limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        """Return settled keys that start with `prefix` and their values, in order, from `prefix + start` on."""

    def stats(self) -> StoreStats:
        """Return the figures for the metrics page."""

    def is_full(self) -> bool:
        """Return whether records are refused because the disk is full."""

    def close(self) -> None:
        """Finish what is in flight, make it durable, release the folder. Calling it again does nothing."""


def range_pages(store: Store, prefix: bytes, page_keys: int = 1_000) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """Yield the settled keys that start with `prefix` and their values, in order, a page at a time.

    The memory is bounded by a page. Each page is read when it is asked for, so pages may see different commits.
    """
    start = b""
    while page := store.range(prefix, start, page_keys):
        yield page
        if len(page) < page_keys:
            return
        start = page[-1][0][len(prefix) :] + b"\0"


def scan_keys(store: Store, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the settled keys that start with `prefix` and their values, in order. They are read in pages."""
    for page in range_pages(store, prefix):
        yield from page
