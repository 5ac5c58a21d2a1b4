"""The log at work: its threads, from the opening to the end.

One thread writes groups, one keeps up (`log.upkeep`), one writes down how far the log is synced (`log.high_mark`), with
`relaxed` durability one more syncs, and any thread reads.
`log.opening` builds it.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from tailrace.log.data_folder import FolderLock
from tailrace.log.encoding import Committed
from tailrace.log.group_writer import GroupWriter
from tailrace.log.high_mark import HighMark
from tailrace.log.maintenance import Maintenance
from tailrace.log.state import StateDb
from tailrace.model.errors import StorageFullError

_ABANDON_SECONDS = 5.0


class Log:
    def __init__(
        self,
        folder_lock: FolderLock,
        state: StateDb,
        groups: GroupWriter,
        upkeep: Maintenance,
        high_mark: HighMark,
        relaxed_sync_seconds: float,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._folder_lock = folder_lock
        self._state = state
        self._groups = groups
        self._upkeep = upkeep
        self._high_mark = high_mark
        self._sync_seconds = relaxed_sync_seconds
        self._on_failure = on_failure
        self._is_relaxed = groups.is_relaxed
        self._unsynced = threading.Event()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=upkeep.run, name="tailrace-maintenance", daemon=True)]
        if self._is_relaxed:
            self._threads.append(threading.Thread(target=self._sync_soon, name="tailrace-sync", daemon=True))

    def start(self) -> None:
        """Begin to maintain the log."""
        for thread in self._threads:
            thread.start()
        self._high_mark.start()

    def writes_at_once(self, commit: Committed) -> bool:
        """Whether writing it takes no more than a copy: no disk and no checkpoint to wait for."""
        return self._groups.writes_at_once(commit) and not self._upkeep.is_behind and not self._high_mark.is_far_behind

    def write(self, group: Sequence[Committed]) -> None:
        """Append the group, make it as durable as the setting says, and show it to readers."""
        self._upkeep.await_checkpoint()
        self._high_mark.wait_until_near()
        self._groups.write(group)
        # To look is a tenth of what it takes to set it. Where it is set, the sync that clears it has not begun.
        if self._is_relaxed and not self._unsynced.is_set():
            self._unsynced.set()
        self._upkeep.group_written()

    def seal(self) -> None:
        """Say in the log that it is durable up to here, so that later damage can't be mistaken for a torn write."""
        self._groups.seal()

    def checkpoint(self) -> None:
        """Save the catalog, so that a start reads only what comes after."""
        self._upkeep.checkpoint()

    def clean(self) -> None:
        """One pass of the cleaner: give back the room of what is no longer needed."""
        self._upkeep.clean()

    def close(self) -> None:
        """Called when nothing is written any more."""
        self._stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        try:
            self.seal()
            with suppress(StorageFullError):  # the next start replays instead
                self.checkpoint()
            self._groups.close()
            self._high_mark.finish(self._groups.synced)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of all files as they are, after a failure: what is on disk decides."""
        self._stop()
        for thread in self._threads:
            # Whatever it is in the middle of uses these files. It meets the failure, too, and ends.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_ABANDON_SECONDS)
        self._groups.abandon()
        self._high_mark.close()
        self._state.close()
        self._folder_lock.release()

    def _stop(self) -> None:
        self._stopping.set()
        self._unsynced.set()
        self._upkeep.stop()
        self._high_mark.stop()

    def _sync_soon(self) -> None:
        while True:
            self._unsynced.wait()
            self._stopping.wait(timeout=self._sync_seconds)
            self._unsynced.clear()
            if self._stopping.is_set():
                return
            try:
                self._groups.sync()
                self._groups.seal_if_synced()
            except BaseException as error:  # noqa: BLE001  the top of the thread: a failed sync ends the store
                self._on_failure(error)
                return
