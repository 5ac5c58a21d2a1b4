"""A program that writes to a table while checkpoints of it are taken and its changes are deleted, until it is killed.

Each client has keys of its own and prints line by line what it tries to set them to, and what was acknowledged.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.log.options import LogOptions
from tailrace.model.clock import SystemClock
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits
from tailrace.model.table import changes_partition
from tailrace.sql.parse import parse
from tailrace.sql.tables.tables import Tables
from tailrace.store.embedded import EmbeddedStore
from tests.support.history import Note, encode_event
from tests.support.tables import TableSql

TABLE = "app.state"
KEYS = 40
LIMITS = Limits(min_free_bytes=0, snapshot_rows=20)
OPTIONS = LogOptions(segment_bytes=64 * 1024, checkpoint_bytes=128 * 1024, checkpoint_batches=100)


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), encode_event(Note(text)))


async def work(sql: TableSql, run: int, client: int, writes: int) -> None:
    for count in range(writes):
        key = f"{client}-{count * 7 % KEYS}"
        value = f"{run}.{count}" if count % 5 else None
        say(f"try {key}={value}")
        if value is None:
            await sql.run(f"DELETE FROM {TABLE} WHERE k = ?", [key])
        else:
            await sql.run(f"INSERT INTO {TABLE} VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v", [key, value])
        say(f"done {key}={value}")


async def take_checkpoints(broker: Broker) -> None:
    while True:
        table = broker.tables.get(TABLE)
        await broker.changes.checkpoints.cover(changes_partition(table), broker.changes.bounds(table).end)
        await asyncio.sleep(0.01)


async def delete_changes(broker: Broker) -> None:
    """Delete all changes, once the rows are durable."""
    while True:
        try:
            await broker.retention.delete_before(TABLE, 0, None)
        except TailraceError:
            await asyncio.sleep(0.05)
        else:
            say("deleted")
            return


async def main(args: argparse.Namespace) -> None:
    store = EmbeddedStore.open(args.folder, limits=LIMITS, options=OPTIONS)
    clock = SystemClock()
    broker = Broker(store, clock, LIMITS)
    await broker.start()
    tables = await Tables.open(args.folder, broker, clock, LIMITS)
    sql = TableSql(broker, tables)
    if broker.tables.find(TABLE) is None:
        await tables.create(parse(f"CREATE TABLE {TABLE} (k text PRIMARY KEY, v text)")[0])  # type: ignore[arg-type]
    say("open")
    checkpoints = asyncio.create_task(take_checkpoints(broker))
    await asyncio.gather(*(work(sql, 2 * args.run, client, args.writes) for client in range(4)))
    await delete_changes(broker)
    checkpoints.cancel()
    await asyncio.gather(checkpoints, return_exceptions=True)
    # So that the table holds more than its checkpoint.
    await work(sql, 2 * args.run + 1, 0, min(args.writes, 30))
    await tables.close()
    await broker.close()
    store.close()
    say("closed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--writes", type=int, default=1_000_000)
    asyncio.run(main(parser.parse_args()))
