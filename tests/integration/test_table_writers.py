"""Fifty clients write to the same rows at the same time: no change is lost, none is seen twice."""

import asyncio
import json
from pathlib import Path

from tailrace.model.clock import SystemClock
from tailrace.model.errors import ConstraintError
from tailrace.store.embedded import EmbeddedStore
from tests.support.aio import on_loop
from tests.support.tables import replayed, running_tables

CLIENTS = 50
ROUNDS = 20


@on_loop
async def test_fifty_writers_lose_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path / "data")
    async with running_tables(tmp_path / "data", store, SystemClock()) as sql:
        await sql.run("CREATE TABLE counters (id integer PRIMARY KEY, n bigint NOT NULL)")
        await sql.run("CREATE TABLE claims (id integer PRIMARY KEY, client integer NOT NULL)")
        await sql.run("INSERT INTO counters VALUES (0, 0), (1, 0)")
        won: list[int] = []

        async def client(number: int) -> None:
            for turn in range(ROUNDS):
                await sql.transact(
                    "UPDATE counters SET n = n + 1 WHERE id = 0; UPDATE counters SET n = n + ? WHERE id = 1", [number]
                )
                try:
                    await sql.run("INSERT INTO claims VALUES (?, ?)", [turn, number])
                    won.append(turn)
                except ConstraintError:
                    pass

        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        assert await sql.rows("SELECT id, n FROM counters ORDER BY id") == [
            (0, CLIENTS * ROUNDS),
            (1, ROUNDS * sum(range(CLIENTS))),
        ]
        assert sorted(won) == list(range(ROUNDS))
        events = await sql.events("counters")
        assert [event["new"]["n"] for event in events if event["key"] == {"id": 0}] == list(range(CLIENTS * ROUNDS + 1))
        assert set(replayed(events)) == {json.dumps({"id": id}) for id in (0, 1)}
        stats = sql.broker.changes.stats
        assert stats.transactions == 1 + CLIENTS * ROUNDS + ROUNDS
        assert sum(stats.transactions_per_commit.counts) < stats.transactions / 5
    store.close()
