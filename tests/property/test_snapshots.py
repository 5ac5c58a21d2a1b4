"""Any writes between the chunks of any snapshots: what a route gets about a key begins with one read and misses nothing.

In between the tables are closed and opened again, also without their file, and routes come and go.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.errors import SqlError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.engine import StatementEngine
from tailrace.sql.tables.tables import FILE_NAME
from tailrace.store.memory import MemoryStore
from tests.support.brokers import running_broker
from tests.support.snapshots import events_for, rows_told, take_turns_by_hand, turn
from tests.support.tables import records_of, replayed

LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, snapshot_rows=3)
TABLE = "CREATE TABLE s.t (a decimal(4, 1), b text, v bigint, PRIMARY KEY (a, b))"
TOPICS = ("s.one", "s.two")

Key = tuple[str, str]


class Put(NamedTuple):
    keys: list[Key]
    v: int

    def sql(self) -> str:
        rows = ", ".join(f"({a}, '{b}', {self.v})" for a, b in self.keys)
        return f"INSERT INTO s.t VALUES {rows} ON CONFLICT (a, b) DO UPDATE SET v = excluded.v"


class PutPlain(NamedTuple):
    """Refused as a whole if one of them is there."""

    keys: list[Key]

    def sql(self) -> str:
        rows = ", ".join(f"({a}, '{b}', 0)" for a, b in self.keys)
        return f"INSERT INTO s.t VALUES {rows}"


class Move(NamedTuple):
    by: str

    def sql(self) -> str:
        return f"UPDATE s.t SET a = a + {self.by} WHERE b = 'x'"


class Raise(NamedTuple):
    above: str

    def sql(self) -> str:
        return f"UPDATE s.t SET v = v + 1 WHERE a >= {self.above}"


class Take(NamedTuple):
    key: Key

    def sql(self) -> str:
        return f"DELETE FROM s.t WHERE a = {self.key[0]}"


class Turn(NamedTuple):
    pass


class Add(NamedTuple):
    topic: str


class Drop(NamedTuple):
    topic: str


class Reopen(NamedTuple):
    is_lost: bool


# As text, 9 comes after 10 and before -9; as decimals not.
keys = st.tuples(st.sampled_from(["-10", "-9.5", "0", "2", "9", "10", "10.5"]), st.sampled_from(["", "x", "X", "é"]))
some_keys = st.lists(keys, min_size=1, max_size=5, unique=True)
writes = st.one_of(
    st.builds(Put, some_keys, st.integers(0, 9)),
    st.builds(PutPlain, some_keys),
    st.builds(Move, st.sampled_from(["0.5", "-1", "20"])),
    st.builds(Raise, st.sampled_from(["-10", "9", "10"])),
    st.builds(Take, keys),
)
transactions = st.lists(writes, min_size=1, max_size=3)
steps = st.one_of(
    transactions,
    transactions,
    st.builds(Turn),
    st.builds(Turn),
    st.builds(Add, st.sampled_from(TOPICS)),
    st.builds(Drop, st.sampled_from(TOPICS)),
    st.builds(Reopen, st.booleans()),
)
Step = list[Any] | Turn | Add | Drop | Reopen


@settings(max_examples=40, deadline=None)
@given(st.lists(keys, min_size=6, max_size=20, unique=True), st.lists(steps, min_size=6, max_size=25))
def test_a_route_gets_each_row_once_and_then_its_changes(first: list[Key], plan: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(first, [Add("s.one"), *plan], Path(folder)))


async def _play(first: list[Key], plan: list[Step], folder: Path) -> None:
    async with running_broker(MemoryStore(limits=LIMITS), limits=LIMITS) as broker:
        sql = await _open(folder, broker)
        try:
            await sql.execute(f"{TABLE}; CREATE TOPIC s.one; CREATE TOPIC s.two")
            if first:
                await sql.execute(PutPlain(first).sql())
            for step in plan:
                if isinstance(step, Reopen):
                    await sql.close()
                    if step.is_lost:
                        (folder / FILE_NAME).unlink()
                    sql = await _open(folder, broker)
                else:
                    await _take(step, sql, broker)
            while broker.snapshots.running:
                await turn(sql.tables, broker)
            await _check(sql, broker)
        finally:
            await sql.close()


async def _open(folder: Path, broker: Broker) -> StatementEngine:
    sql = await StatementEngine.open(folder, broker, SystemClock(), LIMITS)
    await take_turns_by_hand(sql.tables)
    return sql


async def _take(step: Step, sql: StatementEngine, broker: Broker) -> None:
    topics = {route.topic_name for route in broker.routes}
    if isinstance(step, Turn):
        await turn(sql.tables, broker)
    elif isinstance(step, Add) and step.topic not in topics:
        await sql.execute(f"ALTER TOPIC {step.topic} ADD SOURCE s.t ON INSERT, UPDATE, DELETE WITH (snapshot = true)")
    elif isinstance(step, Drop) and step.topic in topics:
        await sql.execute(f"ALTER TOPIC {step.topic} DROP SOURCE s.t")
    elif isinstance(step, list):
        try:
            await sql.execute(f"BEGIN; {'; '.join(write.sql() for write in step)}; COMMIT")
        except SqlError:
            # Two rows with one key, or too many digits: refused as a whole.
            return


async def _check(sql: StatementEngine, broker: Broker) -> None:
    records = await records_of(broker, "s.t")
    (result,) = await sql.execute("SELECT a, b, v FROM s.t")
    rows = {json.dumps({"a": str(a), "b": b}): {"a": str(a), "b": b, "v": v} for a, b, v in result.rows}
    assert replayed([json.loads(record.value or b"") for record in records]) == rows
    for route in broker.routes.history:
        events = events_for(route, records)
        told = rows_told(events)
        if route.until is None:
            assert told == rows
            assert broker.snapshots.progress(route) == ("done", _reads(events))


def _reads(events: list[dict[str, Any]]) -> int:
    return sum(event["op"] == "read" for event in events)
