"""The process dies or the power is cut between any two steps of a write: rows and change events agree."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.model.killpoint import EXIT_CODE, TABLE_KILLPOINTS
from tailrace.model.limits import Limits
from tailrace.model.record import Record
from tailrace.store.embedded import EmbeddedStore
from tests.chaos.table_writer import TABLES
from tests.support.child import WriterProcess
from tests.support.frozen_writers import cut_while_writing
from tests.support.history import Event, Note
from tests.support.powercut import mounted, why_no_mounts
from tests.support.tables import TableSql, replayed, running_tables

MODULE = "tests.chaos.table_writer"
STEPS = (
    ("change.logged", 1),
    *((name, 6) for name in TABLE_KILLPOINTS),
    ("write.half", 9),
    ("answer.before", 7),
)
"""Kill points, and at which pass to die. The first logged change is the creation of a table."""


def said(events: Sequence[Event], word: str) -> set[str]:
    prefix = f"{word} "
    return {event.text.removeprefix(prefix) for event in events if isinstance(event, Note) and event.text.startswith(prefix)}


def judge(folder: Path, events: Sequence[Event], *, may_lose_tail: bool = False) -> None:
    """Open the folder as the next start would, and compare rows, events and answers."""
    asyncio.run(_judge(folder, events, may_lose_tail))


async def _judge(folder: Path, events: Sequence[Event], may_lose_tail: bool) -> None:
    limits = Limits(min_free_bytes=0)
    store = EmbeddedStore.open(folder, limits=limits)
    try:
        async with running_tables(folder, store, limits=limits) as sql:
            records = {table: await sql.records(table) for table in TABLES if sql.broker.tables.find(table)}
            marks = {table: _marks(found) for table, found in records.items()}
            for table in records:
                await _check_rows(sql, table)
            done = said(events, "done")
            found = set().union(*marks.values())
            assert may_lose_tail or not done - found, f"acknowledged, and not in the log: {sorted(done - found)[:5]}"
            assert not found & said(events, "refused"), "refused, and in the log"
            assert found <= said(events, "try")
            _check_transactions([record for found in records.values() for record in found])
            if sql.broker.tables.find("bank.journal") is not None:
                await sql.run("INSERT INTO bank.journal VALUES ('after', 0)")
                await sql.run("DELETE FROM bank.journal WHERE mark = 'after'")
    finally:
        store.close()


async def _check_rows(sql: TableSql, table: str) -> None:
    result = await sql.run(f"SELECT * FROM {table}")
    names = [column.name for column in result.columns]
    rows = {json.dumps({names[0]: row[0]}): dict(zip(names, map(_plain, row), strict=True)) for row in result.rows}
    assert rows == replayed(await sql.events(table))


def _plain(value: object) -> object:
    return value if isinstance(value, int | str | None) else str(value)


def _marks(records: Sequence[Record]) -> set[str]:
    values = [json.loads(record.value or b"") for record in records]
    return {value["new"]["mark"] for value in values if value["new"] is not None} - {"after"}


def _check_transactions(records: Sequence[Record]) -> None:
    """Check that the events of a transaction are contiguous and have one number."""
    cursors: dict[bytes | None, list[int]] = {}
    for record in records:
        cursors.setdefault(dict(record.headers)["tx"], []).append(record.cursor)
    for tx, places in cursors.items():
        places.sort()
        assert places[-1] - places[0] == len(places) - 1, f"transaction {tx!r} is at {places}"


@pytest.mark.parametrize(("name", "passes"), STEPS)
def test_rows_and_events_agree_after_a_kill_at(name: str, passes: int, tmp_path: Path) -> None:
    writer = WriterProcess(
        tmp_path / "data", "--writes", "400", environment={"TAILRACE_KILLPOINT": f"{name}:{passes}"}, module=MODULE
    )
    assert writer.wait() == EXIT_CODE, f"{name} was not passed {passes} times; {writer.errors}"
    judge(tmp_path / "data", writer.events)


@pytest.mark.timeout(0)
def test_rows_and_events_agree_after_sigkill_again_and_again(tmp_path: Path, chaos_seed: int, kill_cycles: int) -> None:
    moments = random.Random(chaos_seed)
    events: list[Event] = []
    for cycle in range(max(2, kill_cycles // 6)):
        writer = WriterProcess(tmp_path / "data", "--run", str(cycle), "--seed", str(chaos_seed), module=MODULE)
        writer.wait_for_note("open")
        time.sleep(moments.uniform(0.0, 0.4))
        writer.kill()
        events += writer.events
        judge(tmp_path / "data", events)
    print(f"{len(said(events, 'done'))} writes acknowledged")
    assert said(events, "done")


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_acknowledged_writes_survive_power_cuts(durability: str, tmp_path: Path, chaos_seed: int) -> None:
    """With `relaxed` the newest writes may be lost, from rows and events alike."""
    moments = random.Random(chaos_seed)
    cuts = cut_while_writing(
        tmp_path,
        lambda folder: WriterProcess(folder, "--seed", str(chaos_seed), "--durability", durability, module=MODULE),
        lambda writer: writer.wait_for_note("open"),
        [moments.uniform(0.05, 0.7) for _ in range(3)],
    )
    for copy, events in cuts:
        with mounted(copy, tmp_path / copy.stem) as disk:
            judge(disk / "data", events, may_lose_tail=durability == "relaxed")
    assert said(cuts[-1][1], "done")


def test_a_writer_that_ends_by_itself_leaves_a_file_that_lacks_nothing(tmp_path: Path) -> None:
    writer = WriterProcess(tmp_path / "data", "--writes", "30", module=MODULE)
    assert writer.wait() == 0, writer.errors
    judge(tmp_path / "data", writer.events)
    assert not list((tmp_path / "data").glob("tables.db-*"))
