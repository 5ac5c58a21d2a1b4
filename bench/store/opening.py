"""Opening a folder: after a kill in the middle of writing, and with the maximum number of partitions."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.audit import AuditFailure, check_folder, check_streams, new_store
from bench.batches import BYTES_100, BYTES_200, KB_16, Shape, Stream, ring_of_copies
from bench.figures import Bar, Figure, Samples, Section
from bench.store.fresh_process import Acknowledged, FreshProcess, Opened, open_folder
from bench.workspace import Workspace
from bench.writers import PipelinedWriter
from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.ids import PartitionId
from tailrace.store.embedded import EmbeddedStore


class _Case(NamedTuple):
    shape: Shape
    log_bytes: int
    again_bytes: int
    """The bytes that are written between two kills."""


class _Opening(NamedTuple):
    opened: Opened
    from_start_seconds: float


def run_after_kill(workspace: Workspace) -> Section:
    scale = workspace.scale
    figures = []
    remarks = []
    for case in (
        _Case(KB_16, scale.killed_bytes, scale.killed_again_bytes),
        _Case(BYTES_100, scale.killed_small_bytes, scale.killed_small_again_bytes),
    ):
        workspace.say(f"opening, {case.shape.name} batches")
        with workspace.folder() as folder:
            openings = _open_and_kill(folder, case, scale.rounds)
        name = f"{case.log_bytes / 1e6:,.0f} MB in {case.shape.name} batches"
        seconds = Samples([opening.opened.store_seconds for opening in openings])
        from_start = Samples([opening.from_start_seconds for opening in openings])
        figures += [
            Figure(name=name, ours=seconds, unit="s", bar=Bar("under", 5)),
            Figure(name=f"{name}, from the start of the process", ours=from_start, unit="s"),
        ]
        remarks.append(f"{case.shape.name} batches: {_about_opening([opening.opened for opening in openings])}")
    return Section(
        title="Opening after SIGKILL",
        text="A process appends (`relaxed`, one batch a commit) and is killed in the middle of it. A new process opens the"
        " folder, checks that everything that was acknowledged is there, appends more and is killed as well, and so on. The"
        " figure is the time of `EmbeddedStore.open`, with the files in the page cache.",
        figures=figures,
        remarks=remarks,
    )


def _open_and_kill(folder: Path, case: _Case, rounds: int) -> list[_Opening]:
    openings = []
    with _appending(folder, case.shape, case.log_bytes) as process:
        process.receive(Opened)
        acknowledged = process.receive(Acknowledged).batches
    for _ in range(rounds):
        with _appending(folder, case.shape, case.again_bytes) as process:
            opened = process.receive(Opened)
            openings.append(_Opening(opened, process.age))
            if opened.batches < acknowledged:
                raise AuditFailure(f"{acknowledged} batches were acknowledged, {opened.batches} are there after SIGKILL")
            acknowledged = process.receive(Acknowledged).batches
    return openings


def _appending(folder: Path, shape: Shape, size: int) -> FreshProcess:
    return FreshProcess("append", str(folder), "--shape", shape.name, "--bytes", str(size))


def _about_opening(openings: Sequence[Opened]) -> str:
    megabytes = [opened.replayed_bytes / 1e6 for opened in openings]
    frames = [opened.replayed_frames for opened in openings]
    seconds = max(opened.replay_seconds for opened in openings)
    torn = sum(opened.torn_bytes > 0 for opened in openings)
    return (
        f"{min(megabytes):,.0f} to {max(megabytes):,.0f} MB of log ({min(frames):,} to {max(frames):,} frames) were newer than"
        f" the saved index and were replayed, in {seconds:.2f} s at most; {torn} of {len(openings)} kills left a torn frame."
    )


BATCHES_EACH = 10

_DISTINCT = 65_536


def run_many_partitions(workspace: Workspace) -> Section:
    scale = workspace.scale
    count = scale.topics * scale.partitions_per_topic
    workspace.say("partitions")
    with workspace.folder() as folder:
        _fill(workspace, folder)
        openings = [_open(folder, count) for _ in range(scale.rounds)]
        check_folder(folder)
    return Section(
        title="Many partitions",
        text=f"{scale.topics} topics of {scale.partitions_per_topic:,} partitions with {BATCHES_EACH} batches each, made"
        " through the broker and closed. A new process opens the store, starts a broker on it and says how much memory it has.",
        figures=[
            Figure(
                name=f"{count:,} partitions, open",
                ours=Samples([opened.store_seconds + opened.broker_seconds for opened in openings]),
                unit="s",
                bar=Bar("under", 3),
            ),
            Figure(
                name=f"{count:,} partitions, memory of the process",
                ours=Samples([opened.memory_bytes / 1e6 for opened in openings]),
                unit="MB",
                bar=Bar("under", 500),
            ),
        ],
    )


def _fill(workspace: Workspace, folder: Path) -> None:
    with new_store(folder, "relaxed") as store:
        partitions = asyncio.run(_create_topics(store, workspace.scale.topics, workspace.scale.partitions_per_topic))
        stream = Stream(partitions, ring_of_copies(BYTES_200, _DISTINCT))
        PipelinedWriter(store).send(stream.each(len(partitions) * BATCHES_EACH))
        check_streams(store, stream)


async def _create_topics(store: EmbeddedStore, topics: int, partitions: int) -> list[PartitionId]:
    broker = Broker(store, SystemClock())
    await broker.start()
    made = [await broker.topics.create(f"topic.{number}", partitions) for number in range(topics)]
    await broker.close()
    return [PartitionId(topic.id, number) for topic in made for number in range(partitions)]


def _open(folder: Path, count: int) -> Opened:
    opened = open_folder(folder)
    if opened.partitions != count:
        raise AuditFailure(f"{count} partitions were made, {opened.partitions} are there")
    return opened
