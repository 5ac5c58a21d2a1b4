"""A program that publishes large values, deletes old ones and sweeps, until it is killed, and prints what was acknowledged.

Every other value is the same, so that its payload is shared, loses its last reference and is stored again.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.broker.settings import BrokerSettings
from tailrace.log.options import LogOptions
from tailrace.model.clock import SystemClock
from tailrace.model.ids import Offset
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Message
from tailrace.store.embedded import EmbeddedStore
from tests.support.history import Note, encode_event

TOPIC = "large"
LIMITS = Limits(min_free_bytes=0, payload_inline_bytes=4 * KIB)
SHARED = b"shared"
_KEPT = 7
"""The number of records that a trim leaves."""


def content_of(mark: bytes) -> bytes:
    """Return a large value with this number, except for every fourth, which is small enough for the log."""
    size = 100 if mark.endswith(b"3") else 6_000
    return (mark + b".").ljust(size, b"-")


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), encode_event(Note(text)))


async def publish(broker: Broker, mark: bytes) -> None:
    say(f"try {mark.decode()}")
    published = await broker.publisher.publish([Message(TOPIC, content_of(mark)), Message(TOPIC, content_of(SHARED))])
    say(f"done {mark.decode()} {published[0].offset}")


async def run(args: argparse.Namespace) -> None:
    store = EmbeddedStore.open(
        args.folder,
        durability=args.durability,
        limits=LIMITS,
        options=LogOptions(segment_bytes=4 * KIB, checkpoint_bytes=8 * KIB, checkpoint_batches=10),
    )
    broker = Broker(store, SystemClock(), LIMITS, BrokerSettings(payload_interval_seconds=10**6))
    await broker.start()
    await broker.topics.create(TOPIC)
    say("open")
    for turn in range(args.rounds):
        marks = [b"%d-%d-%d" % (args.run, turn, number) for number in range(4)]
        await asyncio.gather(*(publish(broker, mark) for mark in marks))
        end = store.bounds(broker.topics.get(TOPIC).partition(0)).end
        keep = 0 if turn % 3 == 2 else _KEPT
        await broker.retention.delete_before(TOPIC, 0, Offset(max(0, end - keep)))
        for _ in range(2):
            await broker.payload_sweep.run_once()
            await asyncio.sleep(args.pause)
    await broker.close()
    store.close()
    say("closed")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--durability", choices=("fsync", "relaxed"), default="fsync")
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each sweep")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
