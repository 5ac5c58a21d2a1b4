"""The process dies between any two steps of CREATE TABLE AS: the table is there with all rows, or it is not."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tailrace.model.killpoint import EXIT_CODE, FILL_KILLPOINTS
from tailrace.store.embedded import EmbeddedStore
from tests.chaos.table_filler import LIMITS, ROWS
from tests.support.patience import PATIENCE_SECONDS
from tests.support.tables import running_tables

FEW_STEPS = (("fill.between", 2), ("fill.revealed", 1))
ALL_STEPS = (*((name, 1) for name in FILL_KILLPOINTS), ("fill.between", 3))
_MANY_CYCLES = 100


def test_a_table_is_filled_or_not_there(tmp_path: Path, kill_cycles: int) -> None:
    steps = ALL_STEPS if kill_cycles >= _MANY_CYCLES else FEW_STEPS
    folders = {step: tmp_path / f"{step[0]}-{step[1]}" for step in steps}
    children = {}
    for (name, count), folder in folders.items():
        folder.mkdir()
        environment = {**os.environ, "TAILRACE_KILLPOINT": f"{name}:{count}"}
        command = [sys.executable, "-m", "tests.chaos.table_filler", str(folder)]
        children[name, count] = subprocess.Popen(command, env=environment)
    for child in children.values():
        assert child.wait(PATIENCE_SECONDS) == EXIT_CODE
    for (name, _), folder in folders.items():
        asyncio.run(_judge(folder, is_there=name == "fill.revealed"))


async def _judge(folder: Path, *, is_there: bool) -> None:
    """Open the folder as the next start would, twice: with the file of the tables, and without it."""
    for _ in range(2):
        store = EmbeddedStore.open(folder, limits=LIMITS)
        try:
            async with running_tables(folder, store, limits=LIMITS) as sql:
                assert [table.name for table in sql.broker.tables] == (["filled", "other"] if is_there else ["other"])
                assert [view.name for view in sql.broker.views] == ["seen"]
                names = [live.topic.name for live in sql.broker.topics]
                assert names == (["_changes.filled", "_changes.other"] if is_there else ["_changes.other"])
                if is_there:
                    assert len(await sql.events("filled")) == ROWS
                    assert await sql.value("SELECT count(*) FROM filled") == ROWS
                else:
                    await sql.run("CREATE TABLE filled (id INTEGER PRIMARY KEY)")
                    await sql.run("DROP TABLE filled")
                assert await sql.value("SELECT count(*) FROM other") == 1
        finally:
            store.close()
        for file in folder.glob("tables.db*"):  # noqa: ASYNC240  nobody else waits
            file.unlink()
