"""Opens a folder in a new process, because the cost of a start can only be measured at a start.

As a program it opens a folder, reports how that went and, if asked, appends until it is killed. It writes lines of JSON.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from bench.audit import AuditFailure, check_streams
from bench.batches import SHAPES, Stream, ring_of_copies
from bench.writers import PipelinedWriter
from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.commit import Changes
from tailrace.model.ids import PartitionId, TopicId
from tailrace.server import collect_garbage_rarely
from tailrace.store.embedded import EmbeddedStore

PARTITIONS = 8

_ROOT = Path(__file__).resolve().parents[2]
_DISTINCT = 65_536
_TOPIC = TopicId(1)
_Said = TypeVar("_Said")


class Opened(msgspec.Struct, frozen=True):
    """The cost of a start."""

    store_seconds: float
    broker_seconds: float
    replayed_bytes: int
    replayed_frames: int
    replay_seconds: float
    torn_bytes: int
    memory_bytes: int
    partitions: int
    batches: int
    """The batches of the stream that were found."""


class Acknowledged(msgspec.Struct, frozen=True):
    """The progress of an appending process."""

    batches: int


class FreshProcess:
    """Runs this module as a child process, which is killed by SIGKILL at the end of the block."""

    def __init__(self, *arguments: str) -> None:
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.store.fresh_process", *arguments], cwd=_ROOT, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "FreshProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def receive(self, kind: type[_Said]) -> _Said:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AuditFailure(f"a process that should have said {kind.__name__} ended with code {self._process.wait()}")
        return msgspec.json.decode(line, type=kind)

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.perf_counter() - self._began


def open_folder(folder: Path) -> Opened:
    """Open a folder in a new process, which is killed by SIGKILL."""
    with FreshProcess("open", str(folder)) as process:
        return process.receive(Opened)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=["open", "append"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=list(SHAPES))
    parser.add_argument("--bytes", type=int)
    arguments = parser.parse_args()
    if arguments.task == "open":
        asyncio.run(_open(arguments.folder))
    else:
        _append(arguments.folder, arguments.shape, arguments.bytes)


async def _open(folder: Path) -> None:
    began = time.perf_counter()
    store = EmbeddedStore.open(folder)
    opened = time.perf_counter()
    broker = Broker(store, SystemClock())
    await broker.start()
    _say(_opened(store, opened - began, time.perf_counter() - opened, 0))
    await asyncio.Event().wait()


def _append(folder: Path, shape: str, size: int) -> None:
    """Append this many bytes, report it, and go on until killed."""
    began = time.perf_counter()
    store = EmbeddedStore.open(folder, durability="relaxed")
    seconds = time.perf_counter() - began
    ring = ring_of_copies(SHAPES[shape], _DISTINCT if SHAPES[shape].records == 1 else _DISTINCT // 64)
    if not store.partitions():
        store.commit(Changes(creates=[(_TOPIC, PARTITIONS)]))
    stream = Stream([PartitionId(_TOPIC, number) for number in range(PARTITIONS)], ring, store.end_cursor() // ring.records)
    _say(_opened(store, seconds, 0.0, stream.appended))
    check_streams(store, stream)
    pipeline = PipelinedWriter(store)
    pipeline.send(stream.each(size // ring.batch_bytes))
    _say(Acknowledged(stream.appended))
    while True:
        pipeline.send(stream.each(1_000))


def _opened(store: EmbeddedStore, store_seconds: float, broker_seconds: float, batches: int) -> Opened:
    stats = store.stats()
    return Opened(
        store_seconds,
        broker_seconds,
        stats.replayed_bytes,
        stats.replayed_frames,
        stats.replay_seconds,
        stats.torn_bytes,
        psutil.Process().memory_info().rss,
        len(store.partitions()),
        batches,
    )


def _say(said: msgspec.Struct) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    collect_garbage_rarely()  # as the server does
    _main()
