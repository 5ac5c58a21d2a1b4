"""A program that writes to tables until it is killed, and prints line by line what it tries and what was acknowledged.

Each write carries a unique number, by which it is found in rows and events afterwards.
"""

import argparse
import asyncio
import os
import random
import sys
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.log.options import LogOptions
from tailrace.model.clock import SystemClock
from tailrace.model.errors import SqlError
from tailrace.model.limits import Limits
from tailrace.sql.parse import parse
from tailrace.sql.tables.tables import Tables
from tailrace.store.embedded import EmbeddedStore
from tests.support.history import Note, encode_event
from tests.support.tables import TableSql

TABLES = ("bank.accounts", "bank.journal")
ACCOUNTS = 20


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), encode_event(Note(text)))


class Client:
    def __init__(self, sql: TableSql, run: int, number: int, seed: int) -> None:
        self._sql = sql
        self._name = f"{run}-{number}"
        self._chance = random.Random(f"{seed}-{self._name}")
        self._count = 0

    async def work(self, writes: int) -> None:
        for _ in range(writes):
            self._count += 1
            mark = f"{self._name}-{self._count}"
            text = self._chance.choice((self._move, self._open, self._shut, self._many))()
            say(f"try {mark}")
            try:
                await self._sql.transact(text.replace("$mark", mark))
            except SqlError:
                say(f"refused {mark}")
            else:
                say(f"done {mark}")

    def _account(self) -> int:
        return self._chance.randrange(ACCOUNTS)

    def _move(self) -> str:
        """Write to two tables in one transaction. A number is in both tables or in none."""
        return (
            f"UPDATE bank.accounts SET amount = amount - 1, mark = '$mark' WHERE id = {self._account()};"
            f" INSERT INTO bank.journal VALUES ('$mark', {self._account()})"
        )

    def _open(self) -> str:
        return f"INSERT INTO bank.accounts VALUES ({self._account()}, 100, '$mark')"

    def _shut(self) -> str:
        return f"DELETE FROM bank.accounts WHERE id = {self._account()}; INSERT INTO bank.journal VALUES ('$mark', 0)"

    def _many(self) -> str:
        return (
            f"INSERT INTO bank.accounts SELECT id + {ACCOUNTS}, amount, '$mark' FROM bank.accounts WHERE id < {ACCOUNTS}"
            " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, mark = excluded.mark;"
            " INSERT INTO bank.journal VALUES ('$mark', 1)"
        )


async def run(args: argparse.Namespace) -> None:
    store = EmbeddedStore.open(
        args.folder,
        durability=args.durability,
        limits=Limits(min_free_bytes=0),
        options=LogOptions(segment_bytes=64 * 1024, checkpoint_bytes=128 * 1024, checkpoint_batches=100),
    )
    clock = SystemClock()
    broker = Broker(store, clock)
    await broker.start()
    tables = await Tables.open(args.folder, broker, clock, Limits(min_free_bytes=0))
    sql = TableSql(broker, tables)
    if broker.tables.find("bank.accounts") is None:
        await tables.create(parse("CREATE TABLE bank.accounts (id bigint PRIMARY KEY, amount decimal(12, 2), mark text)")[0])  # type: ignore[arg-type]
    if broker.tables.find("bank.journal") is None:
        await tables.create(parse("CREATE TABLE bank.journal (mark text PRIMARY KEY, account bigint)")[0])  # type: ignore[arg-type]
    say("open")
    clients = [Client(sql, args.run, number, args.seed) for number in range(args.clients)]
    await asyncio.gather(*(client.work(args.writes) for client in clients))
    await tables.close()
    await broker.close()
    store.close()
    say("closed")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--durability", choices=("fsync", "relaxed"), default="fsync")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--writes", type=int, default=1_000_000)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
