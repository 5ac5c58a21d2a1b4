"""A program that appends records, surveys them and deletes some, until it is killed.

The timestamps of each run are before those of the last run, so that what was saved about lost records is wrong for those that
get their offsets.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from random import Random

from tailrace.broker.broker import Broker
from tailrace.broker.settings import BrokerSettings
from tailrace.log.options import LogOptions
from tailrace.model.clock import SystemClock
from tailrace.model.commit import Append, Changes
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Record
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.records import encode_batch
from tests.support.history import Note, encode_event

TOPIC = "surveyed"
LIMITS = Limits(min_free_bytes=0)
_START_MS = 1_700_000_000_000
_RUN_MS = 1_000_000
_VALUE = Random(5).randbytes(20 * KIB)
_TURNS = 200
"""The appends of one run: the disk is small, and has to hold several runs."""
_KEPT = 60
"""The number of records that a trim leaves."""


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), encode_event(Note(text)))


async def run(args: argparse.Namespace) -> None:
    options = LogOptions(segment_bytes=256 * KIB, checkpoint_bytes=512 * KIB, checkpoint_batches=10, relaxed_sync_seconds=0.3)
    store = EmbeddedStore.open(args.folder, durability="relaxed", limits=LIMITS, options=options)
    settings = BrokerSettings(survey_percent=100, survey_interval_seconds=10**6)
    broker = Broker(store, SystemClock(), LIMITS, settings)
    await broker.start()
    if broker.topics.find(TOPIC) is None:
        await broker.topics.create(TOPIC)
    partition = PartitionId(broker.topics.get(TOPIC).topic.id, 0)
    random = Random(args.run)
    say("open")
    for turn in range(_TURNS):
        times = [_START_MS - args.run * _RUN_MS + random.randrange(1_000) for _ in range(2)]
        batch = encode_batch([Record(None, _VALUE, (), time) for time in times])
        store.commit(Changes(appends=(Append(partition, batch, len(times), max(times)),)))
        if turn % 2:
            await broker.survey.run_once()
            say("surveyed")
        if turn % 50 == 49:
            await broker.retention.delete_before(TOPIC, 0, Offset(max(0, store.bounds(partition).end - _KEPT)))
        await asyncio.sleep(0.002)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, default=1)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
