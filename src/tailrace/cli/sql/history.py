"""What was typed at the prompt, kept from one session to the next in the user's state folder.

The file is for its owner alone. It is cut back to its newer half when it has grown too large.
"""

import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from tailrace.cli.display import note

_MOST_BYTES = 2 * 1024 * 1024
_ENTRY = b"\n# "
"""How the file begins an entry."""


def history_file() -> Path:
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder) / "tailrace" / "sql_history"


def open_history(file: Path) -> History:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        if file.stat().st_size > _MOST_BYTES:
            _cut(file)
        with file.open("ab"):
            pass
    except OSError as error:
        note(f"what you type is not remembered: {error.filename}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(file)


def _cut(file: Path) -> None:
    """By way of a second file, so that a crash loses nothing."""
    newer = file.read_bytes()[-_MOST_BYTES // 2 :]
    begin = newer.find(_ENTRY)
    shorter = file.with_name(f"{file.name}.{os.getpid()}")
    shorter.touch(mode=0o600)
    shorter.write_bytes(newer[max(0, begin) :])
    shorter.replace(file)
