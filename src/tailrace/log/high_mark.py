"""The high mark: up to where the log is known to be synced, kept in a file beside it.

A log that lost its end looks like one that never had it. So a separate thread records how far the log was synced, never more
than that, and syncs the record: at most a second and at most 64 MiB behind. If it can't keep up, writers wait for it. A start
reads the mark and refuses a log that ends before it.

The file has two slots, written in turn, each with a checksum and a rising number, so that a torn write leaves the other one
intact. If the file is missing, as in folders of older versions, or neither slot can be read, there is no mark. The log can be
opened without it.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tailrace.log.active_segment import is_storage_full
from tailrace.log.segment import sync_folder
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Position
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB

HIGH_MARK_FILE = "high_mark"
BEHIND_SECONDS = 1.0
BEHIND_BYTES = 64 * MIB
"""How far the mark may be behind the synced position."""

_PAUSE_SECONDS = 0.4
_MANY_BYTES = 40 * MIB
"""The mark is written again this long after the first sync that it does not cover, or after this many bytes."""
_TOO_MANY_BYTES = 48 * MIB
"""From here on the next group waits; it may have some MiB itself."""
_STEP_SECONDS = 0.1
_JOIN_SECONDS = 5.0
_SLOT = Struct(">8sQQ")
_CRC = Struct(">I")
_MAGIC = b"TRmark1\0"
_SLOT_BYTES = 4096
_SLOTS = 2


class FoundMark(NamedTuple):
    """What the file holds."""

    position: Position
    """Up to where the log was synced; 0 if that is not known."""
    number: int
    fault: str
    """What is wrong with the file, or an empty string. The damage may be in the older slot."""


def read_high_mark(folder: Path) -> FoundMark:
    try:
        data = (folder / HIGH_MARK_FILE).read_bytes()
    except FileNotFoundError:
        return FoundMark(Position(0), 0, "")
    found = FoundMark(Position(0), 0, "")
    damaged = 0
    for at in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES):
        slot = data[at : at + _SLOT.size]
        checksum = data[at + _SLOT.size : at + _SLOT.size + _CRC.size]
        if not any(slot + checksum):
            continue  # never written
        if len(slot) < _SLOT.size or checksum != _CRC.pack(crc32c(slot)) or not slot.startswith(_MAGIC):
            damaged += 1
            continue
        _, number, position = _SLOT.unpack(slot)
        if number > found.number:
            found = FoundMark(Position(position), number, "")
    return found._replace(fault=f"{damaged} of its {_SLOTS} slots can't be read" if damaged else "")


class HighMark:
    """The mark of an open log. Threads that sync the log call `note`; threads that write call `wait_until_near`."""

    def __init__(self, folder: Path, on_failure: Callable[[BaseException], None]) -> None:
        found = read_high_mark(folder)
        self._number = found.number
        self._on_failure = on_failure
        self._synced = self._written = found.position
        self._writing_since = 0.0
        self._waiting_since = 0.0
        """When the first sync was that the mark does not cover: of those that are being recorded, and of later ones."""
        self._is_due = threading.Event()
        self._is_urgent = threading.Event()
        self._is_near = threading.Condition()
        self._stopping = False
        self._storage_full: StorageFullError | None = None
        self._thread = threading.Thread(target=self._run, name="tailrace-high-mark", daemon=True)
        self._fd = _open(folder)

    @property
    def is_far_behind(self) -> bool:
        """Whether the next group has to wait for the mark."""
        since = self._writing_since or self._waiting_since
        if not since:
            return False
        return self._synced - self._written >= _TOO_MANY_BYTES or time.monotonic() - since >= BEHIND_SECONDS

    def start(self) -> None:
        self._thread.start()

    def note(self, synced: Position) -> None:
        """Note that the log is synced up to here."""
        self._synced = synced
        # `is_set` takes a tenth of the time of `set`.
        if not self._is_due.is_set():
            self._waiting_since = self._waiting_since or time.monotonic()
            self._is_due.set()
        if synced - self._written >= _MANY_BYTES and not self._is_urgent.is_set():
            self._is_urgent.set()

    def wait_until_near(self) -> None:
        """Wait before more is written. Raises `StorageFullError` if the disk is too full to write the mark."""
        if not self.is_far_behind:
            return
        with self._is_near:
            while self.is_far_behind and not self._stopping:
                if self._storage_full is not None:
                    raise self._storage_full.afresh()
                self._is_urgent.set()
                self._is_near.wait(_STEP_SECONDS)

    def write(self, synced: Position) -> None:
        """Write the mark, durably, even if it is lower than before. No other thread may be writing it."""
        killpoint("mark.before")
        slot = _SLOT.pack(_MAGIC, self._number + 1, synced)
        os.pwrite(self._fd, slot + _CRC.pack(crc32c(slot)), (self._number + 1) % _SLOTS * _SLOT_BYTES)
        killpoint("mark.written")
        os.fdatasync(self._fd)
        self._number += 1
        self._written = synced
        killpoint("mark.after")

    def stop(self) -> None:
        """End the thread; the mark stays as it is."""
        self._stopping = True
        self._is_due.set()
        self._is_urgent.set()

    def finish(self, synced: Position) -> None:
        """Write the last mark, after `stop`, unless the disk is full."""
        self._join()
        try:
            self.write(synced)
        except OSError as error:
            if not is_storage_full(error):
                raise

    def close(self) -> None:
        self.stop()
        self._join()
        # A thread that hangs in a write still uses the file.
        if self._fd >= 0 and not self._thread.is_alive():
            os.close(self._fd)
            self._fd = -1

    def _join(self) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            self._is_urgent.wait(timeout=_PAUSE_SECONDS)
            if self._stopping:
                return
            self._writing_since, self._waiting_since = self._writing_since or self._waiting_since, 0.0
            # Cleared before `_synced` is read: what is synced from here on asks for the next mark.
            self._is_due.clear()
            self._is_urgent.clear()
            synced = self._synced
            try:
                self.write(synced)
                self._writing_since = 0.0
                self._storage_full = None
            except BaseException as error:  # noqa: BLE001  the top of the thread: a disk that fails here fails the log
                if not is_storage_full(error):
                    self._on_failure(error)
                    return
                self._storage_full = StorageFullError(
                    f"the high mark can't be written: {error}. Records are refused until there is free space"
                )
                self._is_due.set()
            with self._is_near:
                self._is_near.notify_all()


def _open(folder: Path) -> int:
    """Open the file. It is created with its full size, so that later writes change nothing but its bytes."""
    path = folder / HIGH_MARK_FILE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size < _SLOTS * _SLOT_BYTES:
            os.pwrite(fd, bytes(_SLOTS * _SLOT_BYTES - size), size)
            os.fsync(fd)
            sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            os.close(fd)
        raise
    return fd
