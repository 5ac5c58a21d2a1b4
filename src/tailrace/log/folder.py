"""What is a data folder: the folders of the log and of its state in it, made when a server first opens it.

Everything in it is for its owner alone. Files that libraries make (RocksDB, SQLite) are so by the umask of the server, and
what an older version has left open to others is closed when the folder is opened.
"""

import logging
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.log.payload_files import PAYLOADS_FOLDER
from tailrace.log.segment import SegmentFolder, sync_folder
from tailrace.model.errors import TailraceError

LOG_FOLDER = "log"
STATE_FOLDER = "state"
TABLES_FILE = "tables.db"

_MOST_ASIDE = 100

_logger = logging.getLogger(__name__)


def make_folder(folder: Path) -> None:
    """Make it if it is not there yet, readable by its owner only. Its name is durable on return."""
    _refuse_file(folder)
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def traces_of_a_log(folder: Path) -> list[str]:
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


def in_words(traces: Sequence[str]) -> str:
    return f"has {' and '.join(traces)} in it, and no log: the log is lost. Restore the folder from a copy"


def set_aside(path: Path) -> None:
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
    if not (folder / LOG_FOLDER).is_dir() and not traces_of_a_log(folder):
        raise TailraceError(f"{folder} is not a data folder: it has no {LOG_FOLDER!r} in it")


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise TailraceError(f"{folder} is a file; the data is in a folder of its own")
