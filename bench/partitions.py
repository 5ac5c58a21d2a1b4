"""A folder with as many partitions as are allowed: how long it takes to open, and how much memory it takes."""

import asyncio
from pathlib import Path

from bench.audit import AuditFailure, check_folder, check_streams
from bench.batches import BYTES_200, ring_of_copies
from bench.figures import Bar, Figure, Section
from bench.fresh import Opened, open_folder
from bench.ground import Ground
from bench.measure import Samples
from bench.pipeline import Pipeline
from bench.stores import new_store
from bench.stream import Stream
from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.ids import PartitionId
from tailrace.store.embedded import EmbeddedStore

BATCHES_EACH = 10

_DISTINCT = 65_536


def run(ground: Ground) -> Section:
    scale = ground.scale
    count = scale.topics * scale.partitions_per_topic
    ground.say("partitions")
    with ground.folder() as folder:
        _fill(ground, folder)
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


def _fill(ground: Ground, folder: Path) -> None:
    with new_store(folder, "relaxed") as store:
        partitions = asyncio.run(_create_topics(store, ground.scale.topics, ground.scale.partitions_per_topic))
        stream = Stream(partitions, ring_of_copies(BYTES_200, _DISTINCT))
        Pipeline(store).send(stream.each(len(partitions) * BATCHES_EACH))
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
