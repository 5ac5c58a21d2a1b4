"""Data folders as a crash leaves them."""

import shutil
import time
from pathlib import Path

from tailrace.log.frame import BadFrameError, Frame, read_frame
from tailrace.log.high_mark import HIGH_MARK_FILE
from tailrace.log.segment import SEGMENT_HEADER_BYTES, salt_of
from tests.support.patience import PATIENCE_SECONDS

_ATTEMPTS = 100


def copy_as_killed(folder: Path, target: Path) -> None:
    """Copy the folder of an open store: what a kill at this moment would leave.

    Files are copied one after the other, so the copy only counts if none of them changed meanwhile.
    """
    for _ in range(_ATTEMPTS):
        try:
            before = _listing(folder)
            shutil.copytree(folder, target)
            if _listing(folder) == before:
                return
        except (FileNotFoundError, shutil.Error):
            pass  # removed while it was looked at or copied: the listing has changed
        shutil.rmtree(target, ignore_errors=True)
    raise AssertionError(f"{folder} does not come to rest")


def forget_the_mark(folder: Path) -> None:
    """As if the kill had come before the high mark knew of the last writes."""
    (folder / HIGH_MARK_FILE).unlink(missing_ok=True)


def segment_files(folder: Path) -> list[Path]:
    """The log's segments in order, the active one last."""
    return sorted((folder / "log").glob("*.seg"))


def frames_of(segment: Path) -> list[Frame]:
    """The frames of a segment in order, up to the first that is not whole."""
    base = int(segment.name.partition("-")[0])
    data = memoryview(segment.read_bytes())
    salt = salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))
    at = SEGMENT_HEADER_BYTES
    found = []
    while at < len(data):
        try:
            found.append(read_frame(data, at, base + at, salt))
        except BadFrameError:
            break
        at += found[-1].size
    return found


def wait_until_sealed(folder: Path) -> Frame:
    """An idle store soon says in its log that all before is durable; that frame."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        frames = frames_of(segment_files(folder)[-1])
        if frames and frames[-1].is_seal:
            return frames[-1]
        time.sleep(0.005)
    raise AssertionError(f"{folder} was not sealed within {PATIENCE_SECONDS:g} s")


def _listing(folder: Path) -> list[tuple[str, int, int, int]]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            stat = path.stat()
            found.append((str(path.relative_to(folder)), stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found
