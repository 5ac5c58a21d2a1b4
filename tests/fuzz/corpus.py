"""Requests as real clients sent them, captured by `tools/record_frames.py`."""

from pathlib import Path
from typing import NamedTuple

from tools.record_frames import FRAMES


class Captured(NamedTuple):
    client: str
    name: str
    """API and version, and the compression where it matters."""
    frame: bytes

    def __str__(self) -> str:
        return f"{self.client}/{self.name}"


def captured(folder: Path = FRAMES) -> list[Captured]:
    return [Captured(path.parent.name, path.stem, bytes.fromhex(path.read_text())) for path in sorted(folder.rglob("*.hex"))]
