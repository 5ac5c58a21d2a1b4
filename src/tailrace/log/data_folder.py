"""The data folder: what is in it, its lock, who may read it, and the free space of its disk.

Only its owner may read it. Files that libraries create (RocksDB, SQLite) are private by the umask of the server, and files of
older versions that others can read are made private when the folder is opened.
"""

import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.log.segment import SegmentFolder, sync_folder
from tailrace.model.errors import FolderInUseError, StorageFullError, TailraceError
from tailrace.model.record import DIGEST_BYTES
from tailrace.model.stats import StoreStats

LOG_FOLDER = "log"
STATE_FOLDER = "state"
TABLES_FILE = "tables.db"
STAGING_FOLDER = "staging"
PAYLOADS_FOLDER = "payloads"
UNFINISHED = ".unfinished"
"""Ends the name of a file that is not completely written yet."""

_LOCK_FILE = "LOCK"
_MAX_ASIDE = 100
_MEASURE_SECONDS = 0.1

_logger = logging.getLogger(__name__)


def make_folder(folder: Path) -> None:
    """Create the folder if it does not exist, readable by its owner only. Its name is durable on return."""
    _refuse_file(folder)
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def remains_without_log(folder: Path) -> list[str]:
    """Return the names of what only a folder with a log can hold, if the log is missing."""
    has_log = (folder / LOG_FOLDER).is_dir()
    if has_log and SegmentFolder(folder / LOG_FOLDER, 1).list_files():
        return []
    payloads = folder / PAYLOADS_FOLDER
    found = {
        STATE_FOLDER: (folder / STATE_FOLDER).is_dir() and not has_log,  # created after that of the log
        TABLES_FILE: (folder / TABLES_FILE).exists(),
        PAYLOADS_FOLDER: payloads.is_dir() and any(payloads.iterdir()),
    }
    return [name for name, is_there in found.items() if is_there]


def describe_lost_log(remains: Sequence[str]) -> str:
    return f"holds {' and '.join(remains)} but no log: the log is lost. Restore the folder from a backup"


def move_aside(path: Path) -> None:
    """Rename a file or folder, in place, together with the files that SQLite keeps next to a database."""
    if not path.exists():
        return
    for number in range(1, _MAX_ASIDE + 1):
        aside = path.with_name(f"{path.name}.before-loss-{number}")
        if not aside.exists():
            for ending in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
            sync_folder(path.parent)
            _logger.warning("%s was renamed to %s", path, aside.name)
            return
    raise TailraceError(f"{path.parent} holds {_MAX_ASIDE} earlier versions of {path.name}; remove some")


def make_private(folder: Path) -> None:
    """Remove the permissions of everyone but the owner from the folder and everything in it."""
    try:
        _make_one_private(folder, folder.stat().st_mode)
        _make_contents_private(folder)
    except PermissionError as error:
        _logger.warning("other users may be able to read the data: %s; make the server's user the owner of its folder", error)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open`; a new one can be read by its owner only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _make_contents_private(folder: str | Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                _make_one_private(entry.path, entry.stat(follow_symlinks=False).st_mode)
                if entry.is_dir(follow_symlinks=False):
                    _make_contents_private(entry.path)
            except FileNotFoundError:
                continue


def _make_one_private(path: str | Path, mode: int) -> None:
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not stat.S_ISLNK(mode):
        Path(path).chmod(stat.S_IMODE(mode) & stat.S_IRWXU)


def require_data_folder(folder: Path) -> None:
    """Refuse a folder that is no data folder, before anything is created in it."""
    if not folder.exists():
        raise TailraceError(f"the folder {folder} does not exist")
    _refuse_file(folder)
    if not (folder / LOG_FOLDER).is_dir() and not remains_without_log(folder):
        raise TailraceError(f"{folder} is not a data folder: it has no {LOG_FOLDER!r} in it")


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise TailraceError(f"{folder} is a file, not a data folder")


class FolderLock:
    """Lets one process have the folder open, from construction to `release` or to the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise FolderInUseError(
                f"{folder} is in use by process {owner or 'unknown'}; stop it first, or choose another folder"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


class FreeSpace:
    """Refuses records while the disk has less free space than `min_free_bytes`, so that there is space left to clean up.

    May be called from any thread.
    """

    def __init__(self, folder: Path, min_free_bytes: int, stats: StoreStats) -> None:
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._stats = stats
        self._measured_at = float("-inf")
        self.is_enough = True
        """As of the last measurement."""
        self.measure()

    def measure(self) -> bool:
        """Return whether there is enough, as of a tenth of a second ago at most."""
        now = time.monotonic()
        if now - self._measured_at >= _MEASURE_SECONDS:
            self._measured_at = now
            with suppress(OSError):  # not a sign of a full disk; the next write reports what is wrong
                disk = os.statvfs(self._folder)
                is_enough = disk.f_bavail * disk.f_frsize >= self._min_free_bytes
                if is_enough != self.is_enough:
                    self.is_enough = is_enough
                    self._report()
        return self.is_enough

    def check(self) -> None:
        """Raise `StorageFullError` if there is not enough."""
        if not self.measure():
            self._stats.failed_commits += 1
            raise StorageFullError(f"{self._describe()}; nothing was written. Free some space and send again")

    def _report(self) -> None:
        if self.is_enough:
            _logger.info("the disk of %s has enough free space again: records are accepted", self._folder)
        else:
            _logger.warning("%s: records are refused until there is more", self._describe())

    def _describe(self) -> str:
        return f"less than {self._min_free_bytes} bytes are free on the disk of {self._folder} (min_free_bytes)"


def payload_path(folder: Path, digest: bytes) -> Path:
    return folder / digest.hex()


def payload_digests(folder: Path) -> Iterator[bytes]:
    """Yield the digests of the payloads in a folder, which are their file names. Other files are ignored."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                digest = bytes.fromhex(entry.name)
            except ValueError:
                continue
            if len(digest) == DIGEST_BYTES:
                yield digest
