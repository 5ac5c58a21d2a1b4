"""Fetches: the tail from memory, older records from disk, and small batches of many partitions in large reads."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.audit import check_streams, new_store, new_stream
from bench.batches import BYTES_200, KB_16, Stream, ring_of_bytes, ring_of_copies
from bench.figures import Bar, Figure, Section, alternate, repeat
from bench.workspace import Workspace
from bench.writers import PipelinedWriter
from tailrace.log.data_folder import LOG_FOLDER
from tailrace.log.options import LogOptions
from tailrace.model.commit import Buffer
from tailrace.model.errors import invariant
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.store.embedded import EmbeddedStore

FETCH_BYTES = MIB
PARTITIONS = 4
INTERLEAVED_PARTITIONS = 100

_DISTINCT = 65_536
_NO_CACHE = msgspec.structs.replace(DEFAULT_LIMITS, tail_cache_bytes=0)
_NEVER_OLD = LogOptions(cache_seconds=3600)


def run(workspace: Workspace) -> Section:
    interleaved, remark = _interleaved(workspace)
    return Section(
        title="Fetch",
        text=f"Fetches of {FETCH_BYTES // MIB} MiB at the store, partition after partition, from start to end and over again."
        " Batches in memory are handed out as they are; the figure with the bar copies them as well, as whoever sends them"
        " must. From disk means with the tail cache off and the files in the page cache: places are looked up in the index"
        " and every batch is checked against its checksum.",
        figures=[*_cached(workspace), _from_disk(workspace), interleaved],
        remarks=[remark],
    )


def _cached(workspace: Workspace) -> list[Figure]:
    scale = workspace.scale
    ring = ring_of_bytes(KB_16, scale.cached_bytes)
    roomy = msgspec.structs.replace(DEFAULT_LIMITS, tail_cache_bytes=2 * scale.cached_bytes)
    with workspace.folder() as folder, new_store(folder, "relaxed", roomy, _NEVER_OLD) as store:
        stream = new_stream(store, 1, PARTITIONS, ring)
        PipelinedWriter(store).send(stream.each(len(ring.batches)))
        workspace.say("fetch, cached")
        rates = alternate(
            {
                "handed out": lambda size: _read(store, stream, size, _leave),
                "copied": lambda size: _read(store, stream, size, b"".join),
            },
            scale.fetched_bytes,
            scale.rounds,
        )
        check_streams(store, stream)
        invariant(store.stats().fetches_from_disk == 0, "what is in the tail cache is served from memory")
    return [
        Figure(name="cached, 16 KB batches, copied", ours=rates["copied"], unit="MB/s", bar=Bar("at least", 1_000)),
        Figure(name="cached, 16 KB batches, handed out", ours=rates["handed out"], unit="MB/s"),
    ]


def _from_disk(workspace: Workspace) -> Figure:
    scale = workspace.scale
    ring = ring_of_copies(KB_16, _DISTINCT // KB_16.records)
    with workspace.folder() as folder, new_store(folder, "relaxed", _NO_CACHE) as store:
        stream = new_stream(store, 1, PARTITIONS, ring)
        PipelinedWriter(store).send(stream.each(scale.fetched_bytes // 4 // ring.batch_bytes))
        store.checkpoint()
        workspace.say("fetch, from disk")
        rates = alternate(
            {
                "ours": lambda size: _read(store, stream, size, _leave),
                "plain": lambda size: _read_files(folder / LOG_FOLDER, size),
            },
            scale.fetched_bytes // 2,
            scale.rounds,
        )
        check_streams(store, stream)
    return Figure(
        name="from disk, 16 KB batches", ours=rates["ours"], unit="MB/s", peer="`os.pread` of 1 MiB", peers=rates["plain"]
    )


def _interleaved(workspace: Workspace) -> tuple[Figure, str]:
    """Return the figure, and a remark about the size of reads."""
    scale = workspace.scale
    ring = ring_of_copies(BYTES_200, _DISTINCT)
    with workspace.folder() as folder, new_store(folder, "relaxed", _NO_CACHE) as store:
        stream = new_stream(store, 1, INTERLEAVED_PARTITIONS, ring)
        PipelinedWriter(store).send(stream.each(scale.interleaved_batches))
        store.checkpoint()
        workspace.say("fetch, interleaved")
        rates = repeat(lambda size: _read(store, stream, size, _leave), stream.bytes // 4, scale.rounds)
        stats = store.stats()
        mean_bytes = stats.disk_read_bytes / stats.disk_reads
        check_streams(store, stream)
    name = f"from disk, {INTERLEAVED_PARTITIONS} partitions x {BYTES_200.name} in turn"
    remark = (
        f"{INTERLEAVED_PARTITIONS} partitions x {BYTES_200.name} in turn: a read from disk has {mean_bytes / 1e3:,.0f} KB on"
        f" average. One batch in {INTERLEAVED_PARTITIONS} of it is what the fetch is after; the rate counts only these."
    )
    return Figure(name=name, ours=rates, unit="MB/s"), remark


def _read(store: EmbeddedStore, stream: Stream, size: int, take: Callable[[Sequence[Buffer]], object]) -> float:
    """Return MB/s of requested batches."""
    left = size
    began = time.perf_counter()
    while left > 0:
        for nth, partition in enumerate(stream.partitions):
            place, end = 0, stream.batches_in(nth)
            while place < end and left > 0:
                batches = store.fetch(partition, stream.offset_of(place), FETCH_BYTES).batches
                take(batches)
                place += len(batches)
                left -= len(batches) * stream.ring.batch_bytes
    return (size - left) / 1e6 / (time.perf_counter() - began)


def _leave(batches: Sequence[Buffer]) -> None:
    """Fetch batches without reading them."""


def _read_files(folder: Path, size: int) -> float:
    files = [os.open(path, os.O_RDONLY) for path in sorted(folder.iterdir())]
    left = size
    began = time.perf_counter()
    while left > 0:
        for fd in files:
            at = 0
            while left > 0 and (piece := os.pread(fd, FETCH_BYTES, at)):
                at += len(piece)
                left -= len(piece)
    seconds = time.perf_counter() - began
    for fd in files:
        os.close(fd)
    return (size - left) / 1e6 / seconds
