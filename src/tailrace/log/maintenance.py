"""Background work on the log: checkpoints, cleaning, and dropping old batches from memory.

One thread does all of it, one thing at a time. Compactions take long, so their callers bring threads of their own; a segment is
not cleaned and compacted at the same time, and checkpoints are saved in between. When checkpoints fall behind, writers wait for
them (`CheckpointBacklog`), which bounds the replay after a crash. A full disk is waited out; any other failure stops the log.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tailrace.log.active_segment import is_storage_full
from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import CheckpointBacklog, Checkpoints
from tailrace.log.cleaner import Cleaner
from tailrace.log.compactor import Compactor
from tailrace.log.kernel_hints import give_back_memory
from tailrace.log.options import LogOptions
from tailrace.log.writer import LogWriter
from tailrace.model.clock import Clock
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import StorageFullError, StoreClosedError
from tailrace.model.limits import MIB
from tailrace.model.stats import StoreStats

_FULL_DISK_PAUSE_SECONDS = 0.5
_WORTH_TRIMMING_BYTES = 4 * MIB

_logger = logging.getLogger(__name__)


class Maintenance:
    def __init__(
        self,
        writer: LogWriter,
        catalog: Catalog,
        backlog: CheckpointBacklog,
        checkpoints: Checkpoints,
        cleaner: Cleaner,
        compactor: Compactor,
        lock: threading.Lock,
        options: LogOptions,
        clock: Clock,
        stats: StoreStats,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._writer = writer
        self._catalog = catalog
        self._backlog = backlog
        self._checkpoints = checkpoints
        self._cleaner = cleaner
        self._compactor = compactor
        self._lock = lock
        self._options = options
        self._clock = clock
        self._stats = stats
        self._on_failure = on_failure
        self._exclusive_lock = threading.Lock()
        self._segments_lock = threading.Lock()
        """Held while closed segments are rewritten. Taken before `_exclusive_lock`."""
        self._compaction_lock = threading.Lock()
        self._stopping = threading.Event()
        self._read_before = 0

    def checkpoint(self) -> None:
        """Save the catalog, so that a start reads only what comes after."""
        with self._exclusively():
            self._checkpoint()

    def clean(self) -> None:
        """Run one pass of the cleaner, which frees the disk space of what is no longer needed."""
        with self._segments_lock:
            self._clean()

    def compact(self, rules: Sequence[CompactionRule], should_stop: Callable[[], bool] | None) -> Sequence[CompactionResult]:
        """Compact partitions. Raises `StoreClosedError` when the log is closed meanwhile, `StorageFullError`."""

        def check_running() -> None:
            self._check_running()
            if should_stop is not None and should_stop():
                raise StoreClosedError("the compaction was broken off")

        rolled = {rule.partition for rule in rules if rule.rolls}
        with self._compaction_lock:
            check_running()
            with self._exclusively():
                self._writer.roll_if(lambda usage, _: usage.holds_any(rolled))
                if self._catalog.has_unsaved_segments:
                    self._checkpoint()
            results = self._compactor.run(rules, self._compacting, self._exclusively, check_running)
            if self._compactor.has_counted:
                # Saves the new count of bytes.
                self.checkpoint()
            return results

    @contextmanager
    def _compacting(self) -> Iterator[None]:
        """Keep the cleaner from the segment that is compacted, after what is due is done."""
        if self._backlog.is_due:
            self.checkpoint()
        with self._segments_lock:
            self._check_running()
            yield

    def _check_running(self) -> None:
        if self._stopping.is_set():
            raise StoreClosedError("the store is closed; open it again to continue")

    def _clean(self) -> None:
        with self._exclusively():
            self._writer.roll_if(self._cleaner.is_worth_cleaning)
            self._checkpoint()
            self._cleaner.run()

    def stop(self) -> None:
        """End the thread, and let no writer wait for a checkpoint any more."""
        self._stopping.set()
        self._backlog.stop()

    def await_compaction(self, timeout_seconds: float = -1) -> None:
        """Wait for the end of a compaction, which comes soon after `stop`."""
        if self._compaction_lock.acquire(timeout=timeout_seconds):
            self._compaction_lock.release()

    def run(self) -> None:
        """Do what is due until `stop`. Runs in a thread of its own."""
        now = self._clock.monotonic()
        next_clean = now + self._options.clean_interval_seconds
        next_aging = now + self._options.cache_seconds
        backlog = self._backlog
        while True:
            backlog.wake_up.wait(timeout=max(0.0, min(next_clean, next_aging) - self._clock.monotonic()))
            # Cleared before `_stopping` is read, which `stop` sets first: so its wake-up is never lost.
            backlog.wake_up.clear()
            if self._stopping.is_set():
                return
            try:
                if self._clock.monotonic() >= next_aging:
                    self._evict_aged()
                    next_aging = self._clock.monotonic() + self._options.cache_seconds
                if backlog.is_due:
                    self.checkpoint()
                if self._clock.monotonic() >= next_clean and self._segments_lock.acquire(blocking=False):
                    # Else a compaction is at work on a segment. Checkpoints must not wait for it.
                    try:
                        self._clean()
                    finally:
                        self._segments_lock.release()
                if self._clock.monotonic() >= next_clean:
                    next_clean = self._clock.monotonic() + self._options.clean_interval_seconds
                backlog.storage_full = None
            except BaseException as error:  # noqa: BLE001  the top of the thread; `_exclusively` has reported the failure
                if not is_storage_full(error):
                    return
                backlog.storage_full = StorageFullError(f"{error}. Records are refused until there is free space")
                _logger.warning("the disk is too full to save the index or to clean up; retrying soon: %s", error)
                self._stopping.wait(timeout=_FULL_DISK_PAUSE_SECONDS)
                backlog.wake_up.set()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Let one thread in at a time. A failure other than a full disk stops the log."""
        with self._exclusive_lock:
            try:
                yield
            except BaseException as error:
                if not is_storage_full(error):
                    self._on_failure(error)
                raise

    def _checkpoint(self) -> None:
        started = self._clock.monotonic()
        with self._lock:
            data = self._catalog.take_unsaved()
        try:
            self._writer.sync_for_checkpoint()
            self._checkpoints.save(data)
        except BaseException:
            with self._lock:
                self._catalog.put_back_unsaved(data)
            raise
        with self._lock:
            self._catalog.release_saved(data)
        self._backlog.note_saved(data.end.position)
        self._stats.checkpoints += 1
        self._stats.checkpoint_seconds.observe(self._clock.monotonic() - started)

    def _evict_aged(self) -> None:
        """Drop old batches from memory. Readers at the tail have been served long ago; later ones find them on disk."""
        has_more = True
        before = self._stats.cached_bytes
        read_bytes = self._stats.disk_read_bytes - self._read_before
        self._read_before += read_bytes
        while has_more:
            with self._lock:
                has_more = self._catalog.cache.evict_aged()
        with self._lock:
            self._catalog.age()
        # Memory that was read into is free again, too.
        if max(before - self._stats.cached_bytes, read_bytes) >= _WORTH_TRIMMING_BYTES:
            give_back_memory()
