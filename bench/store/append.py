"""Appends of large batches, beside plain writes of the same bytes to one file."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.audit import check_streams, new_store, new_stream
from bench.batches import KB_16, MB_1, Ring, Shape, ring_of_bytes
from bench.figures import Bar, Figure, Section, alternate
from bench.workspace import Workspace, settle_disk
from bench.writers import Elapsed, PipelinedWriter, StoreCallers, run_on_loop

PARTITIONS = 8
WRITERS = 64

_BAR = Bar("at least", 0.7)


def run_relaxed(workspace: Workspace) -> Section:
    return Section(
        title="Append, `relaxed`",
        text=f"One thread submits batches, one a commit, to {PARTITIONS} partitions, until the store has no room; then it"
        " waits. The time ends with the last answer. The peers write the same buffers to one new file, one `os.write` a"
        " batch; the second one has a thread beside it that calls `fdatasync` every 100 ms, as `relaxed` does.",
        figures=[figure for shape in (KB_16, MB_1) for figure in _relaxed(workspace, shape)],
    )


def run_synced(workspace: Workspace) -> Section:
    measured = [_synced(workspace, shape) for shape in (KB_16, MB_1)]
    return Section(
        title=f"Append, `fsync`, {WRITERS} writers",
        text=f"{WRITERS} callers on one event loop append to {PARTITIONS} partitions; each waits for its answer, which comes"
        " after the sync, before it appends again. The peer replays the groups that the store made of them: one `os.writev`"
        " and one `os.fdatasync` a group.",
        figures=[figure for figure, _ in measured],
        remarks=[remark for _, remark in measured],
    )


def _relaxed(workspace: Workspace, shape: Shape) -> list[Figure]:
    ring = ring_of_bytes(shape, workspace.scale.ring_bytes)

    def ours(count: int) -> float:
        with workspace.folder() as folder, new_store(folder, "relaxed") as store:
            stream = new_stream(store, 1, PARTITIONS, ring)
            work = stream.take(count)
            settle_disk()
            seconds = PipelinedWriter(store).send(work)
            check_streams(store, stream)
            return ring.megabytes(count) / seconds

    def written(count: int) -> float:
        with workspace.folder() as folder:
            return ring.megabytes(count) / write(folder, ring, count)

    def synced_soon(count: int) -> float:
        with workspace.folder() as folder:
            return ring.megabytes(count) / write_synced_soon(folder, ring, count)

    workspace.say(f"append, relaxed, {shape.name}")
    rates = alternate(
        {"ours": ours, "written": written, "synced soon": synced_soon},
        workspace.scale.append_bytes // ring.batch_bytes,
        workspace.scale.rounds,
    )
    name = f"{shape.name} batches"
    return [
        Figure(name=name, ours=rates["ours"], unit="MB/s", peer="`os.write`", peers=rates["written"], bar=_BAR),
        Figure(name=name, ours=rates["ours"], unit="MB/s", peer="`os.write`, synced every 100 ms", peers=rates["synced soon"]),
    ]


def _synced(workspace: Workspace, shape: Shape) -> tuple[Figure, str]:
    """Return the figure, and a remark about the groups."""
    ring = ring_of_bytes(shape, workspace.scale.ring_bytes)
    groups: list[int] = []

    def ours(count: int) -> float:
        with workspace.folder() as folder, new_store(folder, "fsync") as store:
            stream = new_stream(store, 1, PARTITIONS, ring)
            settle_disk()

            async def write() -> Elapsed:
                callers = StoreCallers(store)
                took = await callers.append(stream.take(count), WRITERS)
                groups[:] = callers.groups
                return took

            took = run_on_loop(write)
            check_streams(store, stream)
            return ring.megabytes(count) / took.seconds

    def replayed(_: int) -> float:
        with workspace.folder() as folder:
            return ring.megabytes(sum(groups)) / write_groups(folder, ring, groups)

    workspace.say(f"append, fsync, {shape.name}")
    sides = {"ours": ours, "replayed": replayed}
    rates = alternate(sides, workspace.scale.synced_bytes // ring.batch_bytes, workspace.scale.synced_rounds)
    figure = Figure(
        name=f"{shape.name} batches",
        ours=rates["ours"],
        unit="MB/s",
        peer="`os.writev` + `fdatasync` of the same groups",
        peers=rates["replayed"],
        bar=_BAR,
    )
    return figure, _about_groups(shape, ring, groups)


def _about_groups(shape: Shape, ring: Ring, groups: Sequence[int]) -> str:
    mean = sum(groups) / len(groups)
    return (
        f"{shape.name}: in the last round {mean:.1f} commits ({ring.megabytes(mean):.2f} MB) shared a sync on average,"
        f" from {min(groups)} to {max(groups)}."
    )


_SYNC_SECONDS = 0.1


def write(folder: Path, ring: Ring, count: int) -> float:
    """Return the seconds of one `os.write` for each batch."""
    with _new_file(folder) as fd:
        return _write(fd, ring, count)


def write_synced_soon(folder: Path, ring: Ring, count: int) -> float:
    """Return the same while a thread syncs every 100 ms, as `relaxed` does."""
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
    """Return the seconds of one `os.writev` and one `os.fdatasync` for each group of batches."""
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
