"""The process dies around the frame of an ALTER TABLE or a TRUNCATE: the table is as before it or as after it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.model.killpoint import EXIT_CODE, TABLE_KILLPOINTS
from tailrace.model.limits import Limits
from tailrace.sql.tables.tables import FILE_NAME
from tailrace.store.embedded import EmbeddedStore
from tests.chaos.schema_writer import SCRIPT
from tests.support.child import WriterProcess
from tests.support.history import Note
from tests.support.tables import TableSql, running_tables

MODULE = "tests.chaos.schema_writer"
ADD, RETYPE, TRUNCATE = 2, 4, 8
CASES = [*((name, RETYPE) for name in TABLE_KILLPOINTS), ("change.logged", ADD), ("change.logged", TRUNCATE)]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_table_is_as_before_or_as_after_what_a_kill_ended(name: str, number: int, tmp_path: Path) -> None:
    # The creation of the table passes only one of them.
    passes = number + (name == "change.logged")
    folder = tmp_path / "data"
    writer = WriterProcess(folder, environment={"TAILRACE_KILLPOINT": f"{name}:{passes}"}, module=MODULE)
    assert writer.wait() == EXIT_CODE, f"{name} was not passed {passes} times; {writer.errors}"
    done = sum(isinstance(event, Note) and event.text.startswith("done") for event in writer.events)
    assert done == number
    expected = number if name == "change.made" else number + 1
    asyncio.run(_judge(folder, expected))


async def _judge(folder: Path, statements: int) -> None:
    """Check the rows as the next start finds them, as it makes them again from the log, and with what follows."""
    limits = Limits(min_free_bytes=0)
    async with running_tables(folder.parent / "model") as model:
        await _run(model, SCRIPT[:statements])
        wanted = await model.run("SELECT * FROM t ORDER BY 1")
        await _run(model, SCRIPT[statements:])
        last = await model.run("SELECT * FROM t ORDER BY 1")
    for is_removed in (False, True):
        if is_removed:
            (folder / FILE_NAME).unlink()
        store = EmbeddedStore.open(folder, limits=limits)
        try:
            async with running_tables(folder, store, limits=limits) as sql:
                assert await sql.run("SELECT * FROM t ORDER BY 1") == wanted
                if is_removed:
                    await _run(sql, SCRIPT[statements:])
                    assert await sql.run("SELECT * FROM t ORDER BY 1") == last
        finally:
            store.close()


async def _run(sql: TableSql, texts: Sequence[str]) -> None:
    for text in texts:
        await sql.run(text)
