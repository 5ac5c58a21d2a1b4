"""A real `tailrace pipeline` or `tailrace up` in a session of its own, with Java and Python workers, to be killed whole."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.logged_process import LoggedProcess


class CommandProcess(LoggedProcess):
    """`with CommandProcess(folder, "pipeline", "--server", url) as process:`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str | None] | None = None,
        python: str = sys.executable,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{arguments[0]}-{len(list(folder.iterdir()))}.log"
        super().__init__([python, "-m", "tailrace", *arguments], log, environment)
