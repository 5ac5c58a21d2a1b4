"""A program that runs a script of ALTER TABLE, TRUNCATE and writes, until it is killed, and prints what was acknowledged."""

import asyncio
import os
import sys
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.limits import Limits
from tailrace.sql.tables.tables import Tables
from tailrace.store.embedded import EmbeddedStore
from tests.support.history import Note, encode_event
from tests.support.tables import TableSql

SCRIPT = (
    "CREATE TABLE t (id bigint PRIMARY KEY, a integer, b text)",
    "INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two')",
    "ALTER TABLE t ADD COLUMN c text DEFAULT 'c', DROP COLUMN b",
    "INSERT INTO t VALUES (3, 3, 'x')",
    "ALTER TABLE t ALTER COLUMN a TYPE decimal(12, 2)",
    "UPDATE t SET a = a + 0.5 WHERE id = 1",
    "ALTER TABLE t RENAME COLUMN id TO key",
    "INSERT INTO t VALUES (4, 4, 'y')",
    "TRUNCATE t",
    "INSERT INTO t VALUES (5, 5, 'z')",
)
"""Each of them passes each of the three kill points of tables once, the first only `change.logged`."""


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), encode_event(Note(text)))


async def run(folder: Path) -> None:
    clock, limits = SystemClock(), Limits(min_free_bytes=0)
    store = EmbeddedStore.open(folder, limits=limits)
    broker = Broker(store, clock)
    await broker.start()
    tables = await Tables.open(folder, broker, clock, limits)
    sql = TableSql(broker, tables)
    for number, text in enumerate(SCRIPT):
        await sql.run(text)
        say(f"done {number}")
    await tables.close()
    await broker.close()
    store.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
