"""A program that reads a log far larger than the tail cache while another thread writes, and prints what that cost.

It runs in a process of its own, whose memory is measured.
"""

import json
import sys
import threading
import time
from pathlib import Path
from statistics import median

from tailrace.model.commit import Changes
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tests.support.batches import append
from tests.support.stores import BACKENDS

BULK, TAIL = PartitionId(TopicId(1), 0), PartitionId(TopicId(1), 1)
LOG_BYTES = 300 * MIB
BATCH_BYTES = 250 * KIB
TAIL_CACHE_BYTES = 8 * MIB
READ_BYTES = MIB
ENOUGH_COMMITS = 50


class TailWriter:
    """Commits small records one after the other and records how long each took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "TailWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.perf_counter()
            self._store.commit(Changes(appends=[append(TAIL, b"tail")]))
            self.seconds.append(time.perf_counter() - started)


def fill(store: Store) -> int:
    store.commit(Changes(creates=[(BULK.topic_id, 2)]))
    batch = append(BULK, bytes(BATCH_BYTES))
    for _ in range(LOG_BYTES // BATCH_BYTES // 4):
        store.commit(Changes(appends=[batch] * 4))
    return store.size(BULK)


def quiet_commit_seconds(store: Store) -> float:
    with TailWriter(store) as quiet:
        while len(quiet.seconds) < ENOUGH_COMMITS:
            time.sleep(0.001)
    return median(quiet.seconds)


def scan_everything(store: Store) -> int:
    cursor, end, size = Cursor(0), store.end_cursor(), 0
    while cursor < end:
        batches, cursor = store.scan(cursor, READ_BYTES)
        size += sum(len(batch.batch) for batch in batches if batch.partition == BULK)
    return size


def fetch_everything(store: Store) -> int:
    offset, size = Offset(0), 0
    while batches := store.fetch(BULK, offset, READ_BYTES).batches:
        size += sum(map(len, batches))
        last = read_header(batches[-1])
        offset = Offset(last.base_offset + last.records)
    return size


def anonymous_memory() -> int:
    """Return the memory of this process, without mapped files."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) * KIB for line in status if line.startswith("RssAnon:"))


class PeakMemory:
    """Samples the memory continuously and keeps the maximum."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.growth = 0

    def __enter__(self) -> "PeakMemory":
        self._base = anonymous_memory()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self.growth = max(self.growth, anonymous_memory() - self._base)


def main() -> None:
    backend, folder = sys.argv[1], Path(sys.argv[2])
    store = BACKENDS[backend].make_home(folder).open(limits=Limits(tail_cache_bytes=TAIL_CACHE_BYTES))
    written = fill(store)
    quiet_before = quiet_commit_seconds(store)
    with PeakMemory() as peak, TailWriter(store) as disturbed:
        while True:
            scanned = scan_everything(store)
            fetched = fetch_everything(store)
            if len(disturbed.seconds) > ENOUGH_COMMITS:
                break
    quiet_after = quiet_commit_seconds(store)
    store.close()
    said = {
        "written": written,
        "scanned": scanned,
        "fetched": fetched,
        "memory_growth": peak.growth,
        # The machine may have become busier meanwhile.
        "quiet_commit_seconds": max(quiet_before, quiet_after),
        "disturbed_commit_seconds": median(disturbed.seconds),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
