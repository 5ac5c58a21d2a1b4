"""Counters and histograms of the store and of SQL, cheap to update. The metrics page turns them into Prometheus families."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)


class Histogram:
    """Counts values by bucket. `counts` has one entry more than `bounds`, for values above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class StoreStats:
    """What a store has done since it was opened."""

    def __init__(self) -> None:
        self.commits = 0
        self.commit_bytes = 0
        self.failed_commits = 0
        self.commit_seconds = Histogram()
        self.sync_seconds = Histogram()
        self.commits_per_sync = Histogram(COUNTS)
        self.pending_commits = 0
        self.pending_bytes = 0
        self.fetches_from_memory = 0
        self.fetches_from_page_cache = 0
        self.fetches_from_disk = 0
        self.disk_reads = 0
        self.disk_read_bytes = 0
        self.cached_bytes = 0
        self.checkpoints = 0
        self.checkpoint_seconds = Histogram()
        self.segments = 0
        self.log_bytes = 0
        self.segments_deleted = 0
        self.segments_rewritten = 0
        self.cleaned_bytes = 0
        self.compactions = 0
        self.compacted_records = 0
        self.compacted_bytes = 0
        self.compaction_seconds = Histogram()
        self.replayed_frames = 0
        self.replayed_bytes = 0
        self.replay_seconds = 0.0
        self.torn_bytes = 0


class SqlStats:
    """What SQL has done since the server was started.

    Each number is changed by one thread only: those of tables by the writer thread of tables, the others on the event loop.
    """

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        """Successful statements by kind: `insert`, `select`, `create_topic` ..."""
        self.failures = 0
        """Requests in which a statement failed."""
        self.rows: Counter[str] = Counter()
        """Changed rows by table."""
        self.transactions = 0
        """Transactions on tables. Each belongs to one client."""
        self.transactions_per_commit = Histogram(COUNTS)
        self.write_seconds = Histogram()
        """Seconds from the submission of a transaction to its answer."""
        self.waiting_writes = 0
        self.waiting_write_bytes = 0
        self.behind = ""
        """Why tables can't be read or written now. Empty if they can."""
        self.checkpoints = 0
        """Completed checkpoints of tables' rows in the log."""
        self.checkpoint_rows: dict[str, int] = {}
        """Rows written so far by checkpoints in progress, by table."""
        self.rebuilds = 0
        """How often the file of the tables was damaged and rebuilt."""
        self.replayed_changes = 0
        """Changes that were applied at the start because the file of the tables lacked them."""
