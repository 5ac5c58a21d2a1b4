"""Rows that COPY could not store: reported one by one, and kept in a file that can be mended and copied again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tailrace.client.values import RejectedRow


class RejectFile:
    """A file of rejected rows, which is made with the first one. Its first line has the names, if the source's has."""

    def __init__(self, target: Any, header_line: bytes, on_rejected: Callable[[RejectedRow], None] | None) -> None:
        self._target = target
        self._header_line = header_line
        self._on_rejected = on_rejected
        self._file: BinaryIO | None = None

    def add(self, row: RejectedRow, raw: bytes) -> None:
        if self._on_rejected is not None:
            self._on_rejected(row)
        if self._target is None:
            return
        if self._file is None:
            is_path = isinstance(self._target, str | os.PathLike)
            self._file = Path(os.fspath(self._target)).open("wb") if is_path else self._target  # noqa: SIM115
            self._file.write(self._header_line)
        self._file.write(raw if raw.endswith((b"\n", b"\r")) else raw + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.flush()
            if self._file is not self._target:
                self._file.close()
