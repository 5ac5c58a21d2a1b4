"""What is a data folder: the folders of the log and of its state in it, made when a server first opens it."""

from pathlib import Path

from tailrace.model.errors import TailraceError

LOG_FOLDER = "log"
STATE_FOLDER = "state"


def make_data_folder(folder: Path) -> None:
    """Make what is not there yet, readable by its owner only."""
    _refuse_file(folder)
    for path in (folder, folder / LOG_FOLDER, folder / STATE_FOLDER):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def require_data_folder(folder: Path) -> None:
    """Refuse what can't be one, before anything is made in it."""
    if not folder.exists():
        raise TailraceError(f"there is no folder {folder}")
    _refuse_file(folder)
    if not (folder / LOG_FOLDER).is_dir():
        raise TailraceError(f"{folder} is not a data folder: it has no {LOG_FOLDER!r} in it")


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise TailraceError(f"{folder} is a file; the data is in a folder of its own")
