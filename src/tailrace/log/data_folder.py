"""What is a data folder: the folders of the log and of its state in it, made when a server first opens it.

Everything in it is for its owner alone. Files that libraries make (RocksDB, SQLite) are so by the umask of the server, and
what an older version has left open to others is closed when the folder is opened.
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

_MOST_ASIDE = 100

_logger = logging.getLogger(__name__)


def make_folder(folder: Path) -> None:
    """Make it if it is not there yet, readable by its owner only. Its name is durable on return."""
    _refuse_file(folder)
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def remains_without_log(folder: Path) -> list[str]:
    """Name what can't be in a folder without a log. Nothing if there is a log, or if the folder is new."""
    has_log = (folder / LOG_FOLDER).is_dir()
    if has_log and SegmentFolder(folder / LOG_FOLDER, 1).list_files():
        return []
    payloads = folder / PAYLOADS_FOLDER
    found = {
        STATE_FOLDER: (folder / STATE_FOLDER).is_dir() and not has_log,  # it is made after that of the log
        TABLES_FILE: (folder / TABLES_FILE).exists(),
        PAYLOADS_FOLDER: payloads.is_dir() and any(payloads.iterdir()),
    }
    return [name for name, is_there in found.items() if is_there]


def describe_lost_log(traces: Sequence[str]) -> str:
    return f"has {' and '.join(traces)} in it, and no log: the log is lost. Restore the folder from a copy"


def move_aside(path: Path) -> None:
    """Give a file or folder another name, beside its own. What SQLite keeps next to a database goes along."""
    if not path.exists():
        return
    for number in range(1, _MOST_ASIDE + 1):
        aside = path.with_name(f"{path.name}.before-loss-{number}")
        if not aside.exists():
            for ending in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
            sync_folder(path.parent)
            _logger.warning("%s was set aside as %s", path, aside.name)
            return
    raise TailraceError(f"{path.parent} holds {_MOST_ASIDE} versions of {path.name} that were set aside; remove some")


def make_private(folder: Path) -> None:
    """Take the permissions of all but the owner from the folder and everything in it."""
    try:
        _close_to_others(folder, folder.stat().st_mode)
        _close_all_to_others(folder)
    except PermissionError as error:
        _logger.warning("others may be able to read the data: %s; let the server own its folder", error)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open`; a new one is for its owner alone."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _close_all_to_others(folder: str | Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                _close_to_others(entry.path, entry.stat(follow_symlinks=False).st_mode)
                if entry.is_dir(follow_symlinks=False):
                    _close_all_to_others(entry.path)
            except FileNotFoundError:
                continue


def _close_to_others(path: str | Path, mode: int) -> None:
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not stat.S_ISLNK(mode):
        Path(path).chmod(stat.S_IMODE(mode) & stat.S_IRWXU)


def require_data_folder(folder: Path) -> None:
    """Refuse what can't be one, before anything is made in it."""
    if not folder.exists():
        raise TailraceError(f"there is no folder {folder}")
    _refuse_file(folder)
    if not (folder / LOG_FOLDER).is_dir() and not remains_without_log(folder):
        raise TailraceError(f"{folder} is not a data folder: it has no {LOG_FOLDER!r} in it")


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise TailraceError(f"{folder} is a file; the data is in a folder of its own")


_NAME = "LOCK"


class FolderLock:
    """Held from construction to `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


_LOOK_SECONDS = 0.1


class FreeSpace:
    """May be called from any thread."""

    def __init__(self, folder: Path, min_free_bytes: int, stats: StoreStats) -> None:
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._stats = stats
        self._looked_at = float("-inf")
        self.is_left = True
        """As of the last look."""
        self.look()

    def look(self) -> bool:
        """Whether there is some, by a look that is a tenth of a second old at most."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            with suppress(OSError):  # a disk that can't be asked is no full one; the next write tells what is wrong
                disk = os.statvfs(self._folder)
                is_left = disk.f_bavail * disk.f_frsize >= self._min_free_bytes
                if is_left != self.is_left:
                    self.is_left = is_left
                    self._say()
        return self.is_left

    def check(self) -> None:
        """Refuse a commit if there is none."""
        if not self.look():
            self._stats.failed_commits += 1
            raise StorageFullError(f"{self._in_words()}; nothing was written. Free some space and send again")

    def _say(self) -> None:
        if self.is_left:
            _logger.info("There is room on the disk of %s again: records are taken", self._folder)
        else:
            _logger.warning("%s: records are refused until there is room", self._in_words())

    def _in_words(self) -> str:
        return f"less than {self._min_free_bytes} bytes are free on the disk of {self._folder} (min_free_bytes)"


PAYLOADS_FOLDER = "payloads"
UNFINISHED = ".unfinished"
"""At the end of the name of a file that is not whole yet."""


def payload_path(folder: Path, digest: bytes) -> Path:
    return folder / digest.hex()


def payload_digests(folder: Path) -> Iterator[bytes]:
    """What the files of a folder are named by; other files are passed over."""
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
