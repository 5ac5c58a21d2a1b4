"""What the broker sees of storage.

A store is one ordered log of commits and an ordered map of state, with two views. The **latest** view includes commits that
are sequenced but not yet durable; rules decide on it, so that requests in flight see each other. The **settled** view holds
only what has been answered; readers see it. If a commit fails, all commits sequenced after it fail too and the latest view
falls back to the settled one.

All methods may be called from any thread. `submit` never blocks on the disk; reads may.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tailrace.model.commit import Changes, CommitReceipt, FetchedBatches, OffsetBounds, ScannedBatches
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.record import PayloadReference
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames


class StoreCommit(Protocol):
    """A commit on its way. Once `done` was called, either `receipt` or `error` is set."""

    changes: Changes
    error: TailraceError | None

    @property
    def receipt(self) -> CommitReceipt:
        """Tentative until done: the place in the log that the commit has if it succeeds."""


OnDone = Callable[[StoreCommit], None]
"""Called once for each commit, in commit order, from a thread of the store or from `submit` itself. Must be quick and must not
raise."""


class Staging(Protocol):
    """A place for batches that are not published yet. May be called from any thread.

    What is there is lost when the server stops, but for stages that were synced and are retained when it is back.
    """

    def write(self, stage: str, part: int, data: bytes) -> None:
        """Keep one part of a stage; the same part again replaces it. Raises `LimitExceededError`, `StorageFullError`."""

    def read(self, stage: str, part: int) -> bytes:
        """Raises `InvalidRequestError` if it is not there."""

    def remove(self, stage: str) -> None:
        """Forget the stage, if there is one."""

    def sync(self, stages: Collection[str]) -> None:
        """Make them durable. Raises `StorageFullError` if that fails; then they are gone, and have to be staged again."""

    def retain(self, stages: Collection[str]) -> None:
        """Called once, before anything is written: forget what is left from before, all but these."""

    def remove_older_than(self, seconds: float, spared: Collection[str]) -> int:
        """Forget what nobody published for so long, but for some that are spared; how many stages that were."""


class PayloadStore(Protocol):
    """Contents by their hash, each held once. Nothing here knows who refers to them. May be called from any thread."""

    def put(self, contents: Mapping[PayloadReference, bytes]) -> Sequence[PayloadReference]:
        """Durable on return; those that were not there before. Raises `StorageFullError`, `StorageFailedError`."""

    def get(self, reference: PayloadReference) -> bytes:
        """Raises `LostPayloadError` if it is not there, or not the content that was put."""

    def remove(self, digests: Iterable[bytes]) -> int:
        """Forget those that are there; how many that were."""

    def digests(self) -> Iterator[bytes]:
        """All that are there, in any order. One that is put or removed meanwhile may be among them or not."""


class Store(Protocol):
    """Durable, atomic, ordered storage for one broker."""

    staging: Staging
    payloads: PayloadStore
    topic_names: TopicNames
    """What to call topics in errors. Whoever knows the names tells them here."""

    def submit(self, changes: Changes, done: OnDone) -> StoreCommit:
        """Give the commit its place in the log and start to make it durable.

        Raises, with nothing changed, when the changes can't be: `UnknownPartitionError`, `SequencingError`,
        `OffsetOutOfRangeError` (a trim beyond the end), `InvalidPartitionsError`, `LimitExceededError`,
        `OverloadedError` (too much in flight), `StoreClosedError`, `StorageFailedError`.
        """

    def commit(self, changes: Changes) -> CommitReceipt:
        """`submit` and wait. Raises what became of it."""

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        """Whole batches from the one that holds `offset` on: up to `max_bytes`, but at least one; none at the end.

        Raises `OffsetOutOfRangeError` below the start and above the end, `CorruptionError` where stored bytes are bad.
        """

    def is_hot(self, partition: PartitionId, offset: Offset) -> bool:
        """Whether a fetch from here is served from memory, without touching the disk."""

    def scan(self, cursor: Cursor, max_bytes: int) -> ScannedBatches:
        """Batches of all partitions in global order from `cursor` on: up to `max_bytes`, but at least one.

        What retention or a deleted topic took away is skipped. `next_cursor` always moves on when there is more to read.
        """

    def bounds(self, partition: PartitionId) -> OffsetBounds:
        """Settled start and end. Raises `UnknownPartitionError`."""

    def next_offset(self, partition: PartitionId) -> Offset:
        """Latest end: the offset that the next append to this partition gets."""

    def end_cursor(self) -> Cursor:
        """Settled end of the log: the cursor after the last record that readers can see."""

    def partitions(self) -> Sequence[PartitionId]:
        """All settled partitions."""

    def size(self, partition: PartitionId, start: Offset | None = None) -> int:
        """Bytes of the batches between start and end, or of those from the one that holds the given offset on."""

    def batch_for_time(self, partition: PartitionId, timestamp_ms: int) -> Offset | None:
        """Base offset of the first batch that holds a record with this timestamp or a later one. Indexed, not a scan."""

    def batch_for_size(self, partition: PartitionId, keep_bytes: int) -> Offset:
        """Base offset of the last batch such that it and all after it are at least `keep_bytes`. The start if there is less."""

    def get(self, key: bytes) -> bytes | None:
        """Settled value of a state key."""

    def latest(self, key: bytes) -> bytes | None:
        """Value of a state key with all sequenced commits counted in."""

    def range(self, prefix: bytes, start: bytes = b"", limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        """Settled keys that start with `prefix`, in order, from `prefix + start` on."""

    def stats(self) -> StoreStats:
        """Figures for the metrics page."""

    def is_full(self) -> bool:
        """Whether records are refused for want of room."""

    def close(self) -> None:
        """Finish what is in flight, make it durable, release the folder. Calling it again does nothing."""
