"""What the log does beside the writing: checkpoints, cleaning, and letting old batches go from memory.

One thread does it all, one thing at a time. When checkpoints fall behind, writers wait for them, so that the replay after a
crash has an end. A full disk is waited out; any other failure stops the log.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.cleaner import Cleaner
from tailrace.log.group_writer import GroupWriter
from tailrace.log.kernel_hints import give_back_memory
from tailrace.log.options import LogOptions
from tailrace.log.writer import is_no_room
from tailrace.model.clock import Clock
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Position
from tailrace.model.limits import MIB
from tailrace.model.stats import StoreStats

_LAG = 4
"""How many checkpoints' worth of unsaved log make the writer wait for the checkpoint."""

_NO_ROOM_PAUSE_SECONDS = 0.5
_WORTH_TRIMMING_BYTES = 4 * MIB

_logger = logging.getLogger(__name__)


class Maintenance:
    def __init__(
        self,
        groups: GroupWriter,
        catalog: Catalog,
        checkpoints: Checkpoints,
        cleaner: Cleaner,
        lock: threading.Lock,
        options: LogOptions,
        clock: Clock,
        stats: StoreStats,
        saved: Position,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._groups = groups
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._cleaner = cleaner
        self._lock = lock
        self._options = options
        self._clock = clock
        self._stats = stats
        self._saved = saved
        """Up to where a start need not replay the log."""
        self._on_failure = on_failure
        self._turn = threading.Lock()
        self._due = threading.Event()
        self._done = threading.Event()
        self._stopping = threading.Event()
        self._no_room: StorageFullError | None = None

    @property
    def is_behind(self) -> bool:
        """Whether so much is unsaved that the next group has to wait."""
        return self._is_unsaved(_LAG)

    def await_checkpoint(self) -> None:
        """Bound the replay after a crash: when checkpoints fall behind, writing waits for them."""
        while self.is_behind and not self._stopping.is_set():
            if self._no_room is not None:
                raise self._no_room.afresh()
            self._done.clear()
            self._due.set()
            self._done.wait(timeout=1.0)

    def group_written(self) -> None:
        if self._is_unsaved(1):
            self._due.set()

    def checkpoint(self) -> None:
        """Save the catalog, so that a start reads only what comes after."""
        with self._alone():
            self._checkpoint()

    def clean(self) -> None:
        """One pass of the cleaner: give back the room of what is no longer needed."""
        with self._alone():
            self._groups.roll_if(self._cleaner.wastes)
            self._checkpoint()
            self._cleaner.run()

    def stop(self) -> None:
        self._stopping.set()
        self._due.set()

    def run(self) -> None:
        """The thread's own loop, until `stop`."""
        now = self._clock.monotonic()
        next_clean = now + self._options.clean_interval_seconds
        next_aging = now + self._options.cache_seconds
        while True:
            self._due.wait(timeout=max(0.0, min(next_clean, next_aging) - self._clock.monotonic()))
            # Cleared before the look at `_stopping`, which `stop` sets first: so its wake-up is never lost.
            self._due.clear()
            if self._stopping.is_set():
                return
            try:
                if self._clock.monotonic() >= next_aging:
                    self._forget_aged()
                    next_aging = self._clock.monotonic() + self._options.cache_seconds
                if self._is_unsaved(1):
                    self.checkpoint()
                if self._clock.monotonic() >= next_clean:
                    self.clean()
                    next_clean = self._clock.monotonic() + self._options.clean_interval_seconds
                self._no_room = None
            except BaseException as error:  # noqa: BLE001  the top of the thread; `_alone` has told of the failure
                if not is_no_room(error):
                    return
                self._no_room = StorageFullError(f"{error}. Until there is room, nothing more can be taken")
                _logger.warning("no room to save the index or to clean up, trying again soon: %s", error)
                self._stopping.wait(timeout=_NO_ROOM_PAUSE_SECONDS)
                self._due.set()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time. Where it fails for another reason than want of room, the log must not go on."""
        with self._turn:
            try:
                yield
            except BaseException as error:
                if not is_no_room(error):
                    self._on_failure(error)
                raise

    def _is_unsaved(self, factor: int) -> bool:
        return (
            self._catalog.unsaved_batches >= factor * self._options.checkpoint_batches
            or self._groups.position - self._saved >= factor * self._options.checkpoint_bytes
        )

    def _checkpoint(self) -> None:
        started = self._clock.monotonic()
        with self._lock:
            cut = self._catalog.cut()
        try:
            self._groups.settle()
            self._checkpoints.save(cut)
        except BaseException:
            with self._lock:
                self._catalog.not_saved(cut)
            raise
        with self._lock:
            self._catalog.saved(cut)
        self._saved = cut.end.position
        self._stats.checkpoints += 1
        self._stats.checkpoint_seconds.observe(self._clock.monotonic() - started)
        self._done.set()

    def _forget_aged(self) -> None:
        """Readers at the tail have long been served; whoever comes later finds the batches on disk."""
        has_more = True
        before = self._stats.cached_bytes
        while has_more:
            with self._lock:
                has_more = self._catalog.evict_aged()
        with self._lock:
            self._catalog.age()
        if before - self._stats.cached_bytes >= _WORTH_TRIMMING_BYTES:
            give_back_memory()
