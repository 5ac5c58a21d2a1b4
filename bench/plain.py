"""The peers: the same bytes, written to one file with the plainest calls there are."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.batches import Ring
from bench.ground import settle_disk

_SYNC_SECONDS = 0.1


def write(folder: Path, ring: Ring, count: int) -> float:
    """Seconds for one `os.write` a batch."""
    with _new_file(folder) as fd:
        return _write(fd, ring, count)


def write_synced_soon(folder: Path, ring: Ring, count: int) -> float:
    """The same, while a thread syncs every 100 ms as `relaxed` does."""
    stop = threading.Event()
    with _new_file(folder) as fd:

        def sync_soon() -> None:
            while not stop.wait(_SYNC_SECONDS):
                os.fdatasync(fd)

        thread = threading.Thread(target=sync_soon)
        thread.start()
        try:
            return _write(fd, ring, count)
        finally:
            stop.set()
            thread.join()


def write_groups(folder: Path, ring: Ring, groups: Sequence[int]) -> float:
    """Seconds for one `os.writev` and one `os.fdatasync` a group of so many batches."""
    batches = ring.batches
    vectors = []
    at = 0
    for size in groups:
        vectors.append([batches[number % len(batches)] for number in range(at, at + size)])
        at += size
    with _new_file(folder) as fd:
        began = time.perf_counter()
        for vector in vectors:
            os.writev(fd, vector)
            os.fdatasync(fd)
        seconds = time.perf_counter() - began
        _check_size(fd, at * ring.batch_bytes)
        return seconds


def _write(fd: int, ring: Ring, count: int) -> float:
    batches = ring.batches
    began = time.perf_counter()
    for number in range(count):
        os.write(fd, batches[number % len(batches)])
    seconds = time.perf_counter() - began
    _check_size(fd, count * ring.batch_bytes)
    return seconds


@contextmanager
def _new_file(folder: Path) -> Iterator[int]:
    settle_disk()
    fd = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _check_size(fd: int, expected: int) -> None:
    written = os.fstat(fd).st_size
    if written != expected:
        raise OSError(f"the file has {written} bytes and should have {expected}")
