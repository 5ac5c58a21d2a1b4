"""A lagging reader beside writers: it should neither slow them down nor fill the memory."""

import threading
import time
from typing import NamedTuple

import psutil

from bench.audit import check_streams, new_store, new_stream
from bench.batches import KB_16, Stream, ring_of_bytes, ring_of_copies
from bench.figures import Bar, Figure, Samples, Section, alternate
from bench.store.append import WRITERS
from bench.workspace import Workspace, settle_disk
from bench.writers import Elapsed, PipelinedWriter, StoreCallers, run_on_loop
from tailrace.model.limits import MIB
from tailrace.store.embedded import EmbeddedStore

PARTITIONS = 8
STEADY_BYTES_PER_SECOND = 100e6

_DISTINCT = 4_096
_FILL, _WRITTEN = 1, 2


class _Seen(NamedTuple):
    """What a reader did while writers appended."""

    megabytes_per_second: float
    grown_megabytes: float


def run(workspace: Workspace) -> Section:
    scale = workspace.scale
    ring = ring_of_bytes(KB_16, scale.ring_bytes)
    old = ring_of_copies(KB_16, _DISTINCT)
    steady: list[_Seen] = []
    unbridled: list[_Seen] = []
    with workspace.folder() as folder, new_store(folder, "fsync") as store:
        behind = new_stream(store, _FILL, PARTITIONS, old)
        PipelinedWriter(store).send(behind.each(scale.behind_bytes // old.batch_bytes))
        written = new_stream(store, _WRITTEN, PARTITIONS, ring)

        def alone(appends: int) -> float:
            settle_disk()

            async def write() -> Elapsed:
                return await StoreCallers(store).append(written.take(appends), WRITERS)

            return ring.megabytes(appends) / run_on_loop(write).seconds

        def beside(bytes_per_second: float, appends: int, seen: list[_Seen]) -> float:
            reader = _Reader(store, behind, bytes_per_second)
            reader.start()
            try:
                return alone(appends)
            finally:
                seen.append(reader.stop())

        workspace.say("reader far behind")
        rates = alternate(
            {
                "steady": lambda appends: beside(STEADY_BYTES_PER_SECOND, appends, steady),
                "alone": alone,
                "unbridled": lambda appends: beside(float("inf"), appends, unbridled),
            },
            scale.synced_bytes // ring.batch_bytes,
            scale.rounds,
        )
        check_streams(store, behind, written)
    steady, unbridled = steady[-scale.rounds :], unbridled[-scale.rounds :]
    return Section(
        title="A reader far behind",
        text=f"{WRITERS} writers as above ({KB_16.name} batches, `fsync`), with and without a thread of the same process that"
        f" reads old batches from disk, 1 MiB at a time: at {STEADY_BYTES_PER_SECOND / 1e6:.0f} MB/s as over a fast line,"
        " and as fast as it can, which no line takes. Memory is how much the process grows while the fast one reads.",
        figures=[
            Figure(
                name=f"writers beside a reader of {STEADY_BYTES_PER_SECOND / 1e6:.0f} MB/s",
                ours=rates["steady"],
                unit="MB/s",
                peer="writers alone",
                peers=rates["alone"],
                bar=Bar("at least", 0.8),
            ),
            Figure(
                name="writers beside a reader without a pause",
                ours=rates["unbridled"],
                unit="MB/s",
                peer="writers alone",
                peers=rates["alone"],
            ),
            Figure(name="the reader itself", ours=Samples([seen.megabytes_per_second for seen in unbridled]), unit="MB/s"),
            Figure(
                name="growth of memory",
                ours=Samples([seen.grown_megabytes for seen in unbridled]),
                unit="MB",
                bar=Bar("under", 100),
            ),
        ],
    )


class _Reader:
    """Reads a stream from its start, repeatedly, until it is stopped."""

    def __init__(self, store: EmbeddedStore, stream: Stream, bytes_per_second: float) -> None:
        self._store = store
        self._stream = stream
        self._bytes_per_second = bytes_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._process = psutil.Process()
        self._memory = self._most_memory = self._process.memory_info().rss
        self._bytes = 0

    def start(self) -> None:
        self._began = time.perf_counter()
        self._thread.start()

    def stop(self) -> _Seen:
        self._stop.set()
        self._thread.join()
        seconds = time.perf_counter() - self._began
        return _Seen(self._bytes / 1e6 / seconds, (self._most_memory - self._memory) / 1e6)

    def _read(self) -> None:
        stream = self._stream
        while True:
            for nth, partition in enumerate(stream.partitions):
                place, end = 0, stream.batches_in(nth)
                while place < end:
                    batches = self._store.fetch(partition, stream.offset_of(place), MIB).batches
                    place += len(batches)
                    self._bytes += len(batches) * stream.ring.batch_bytes
                    self._most_memory = max(self._most_memory, self._process.memory_info().rss)
                    ahead = self._bytes / self._bytes_per_second - (time.perf_counter() - self._began)
                    if self._stop.wait(timeout=ahead) if ahead > 0 else self._stop.is_set():
                        return
