"""Batches that are staged: sent to the server and not published yet.

A stage is a name and numbered parts. Readers do not see it, and it is not durable: what was staged and not published when the
server stops is gone, and its sender stages it again. The exception are stages that were synced because it is decided that they
will be published: those are retained when the folder is opened again.
"""

import re
import shutil
import threading
import time
from collections.abc import Collection
from pathlib import Path

from tailrace.log.data_folder import private_opener
from tailrace.log.segment import sync_file, sync_folder
from tailrace.model.errors import InvalidRequestError, LimitExceededError, StorageFullError
from tailrace.model.limits import Limits

_STAGE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,100}")
_MAX_PARTS = 1_000_000


class StagingFolder:
    """Keeps each part in a file. A part that is sent again replaces the earlier one. May be called from any thread."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits
        self._lock = threading.Lock()
        self._sizes: dict[str, dict[int, int]] = {}
        self._total = 0

    def write(self, stage: str, part: int, data: bytes) -> None:
        path = self._path(stage, part)
        self._reserve(stage, part, len(data))
        # Renamed when it is complete, so that half a part is never published.
        unfinished = path.with_suffix(".unfinished")
        try:
            for folder in (self._folder, path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(unfinished, "wb", opener=private_opener) as file:
                file.write(data)
            unfinished.rename(path)
        except OSError as error:
            raise StorageFullError(f"the batch can't be staged: {error}") from error

    def read(self, stage: str, part: int) -> bytes:
        try:
            return self._path(stage, part).read_bytes()
        except FileNotFoundError:
            raise _missing(stage, part) from None

    def size(self, stage: str) -> int:
        with self._lock:
            return sum(self._sizes.get(stage, {}).values())

    def remove(self, stage: str) -> None:
        folder = self._path(stage, 0).parent
        with self._lock:
            self._total -= sum(self._sizes.pop(stage, {}).values())
        shutil.rmtree(folder, ignore_errors=True)

    def sync(self, stages: Collection[str]) -> None:
        try:
            for stage in stages:
                folder = self._path(stage, 0).parent
                if folder.exists():
                    for path in folder.iterdir():
                        sync_file(path)
                    sync_folder(folder)
            if self._folder.exists():
                sync_folder(self._folder)
                sync_folder(self._folder.parent)
        except OSError as error:
            # The next sync may succeed although pages were lost, so the stages must not be found again.
            for stage in stages:
                self.remove(stage)
            raise StorageFullError(f"staged batches can't be made durable: {error}") from error

    def retain(self, stages: Collection[str]) -> None:
        found = list(self._folder.iterdir()) if self._folder.exists() else []
        for folder in found:
            if folder.name in stages:
                parts = [path for path in folder.iterdir() if path.name.isdigit()]
                self._sizes[folder.name] = {int(path.name): path.stat().st_size for path in parts}
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self._total = sum(size for parts in self._sizes.values() for size in parts.values())

    def remove_older_than(self, seconds: float, spared: Collection[str]) -> int:
        """Remove stages that were not published for this long. Return how many."""
        oldest = time.time() - seconds
        with self._lock:
            stages = [stage for stage in self._sizes if stage not in spared]
        old = [stage for stage in stages if _written_at(self._folder / stage) < oldest]
        for stage in old:
            self.remove(stage)
        return len(old)

    def _reserve(self, stage: str, part: int, size: int) -> None:
        with self._lock:
            parts = self._sizes.get(stage, {})
            more = size - parts.get(part, 0)
            if self._total + more > self._limits.staged_bytes:
                raise LimitExceededError(
                    f"{self._total} bytes are staged and {more} more would be over staged_bytes ({self._limits.staged_bytes});"
                    " publish in smaller batches"
                )
            parts[part] = size
            self._sizes[stage] = parts
            self._total += more

    def _path(self, stage: str, part: int) -> Path:
        if not _STAGE_NAME.fullmatch(stage) or not 0 <= part < _MAX_PARTS:
            raise InvalidRequestError(
                f"{stage[:100]!r}, part {part}: a stage has a name of letters, digits, '_' and '-', and parts from 0"
            )
        return self._folder / stage / f"{part:06}"


class StagingMemory:
    """Stages in memory, for `MemoryStore`."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, bytes]] = {}

    def write(self, stage: str, part: int, data: bytes) -> None:
        self._parts.setdefault(stage, {})[part] = data

    def read(self, stage: str, part: int) -> bytes:
        try:
            return self._parts[stage][part]
        except KeyError:
            raise _missing(stage, part) from None

    def size(self, stage: str) -> int:
        return sum(map(len, self._parts.get(stage, {}).values()))

    def remove(self, stage: str) -> None:
        self._parts.pop(stage, None)

    def sync(self, stages: Collection[str]) -> None:
        pass

    def retain(self, stages: Collection[str]) -> None:
        self._parts = {stage: parts for stage, parts in self._parts.items() if stage in stages}

    def remove_older_than(self, seconds: float, spared: Collection[str]) -> int:
        return 0


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _missing(stage: str, part: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"part {part} of stage {stage!r} does not exist. Stages are lost when the server restarts: stage it again"
    )
