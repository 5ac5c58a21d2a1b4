"""The process dies in the middle of a checkpoint of a table, or while its file is rebuilt: no row is lost or reappears."""

import asyncio
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.log.fsck import run_fsck
from tailrace.log.offline import offline_log
from tailrace.model.killpoint import CHECKPOINT_KILLPOINTS, EXIT_CODE, REBUILD_KILLPOINTS
from tailrace.sql.tables.fsck import check_tables
from tailrace.sql.tables.tables import FILE_NAME
from tailrace.store.embedded import EmbeddedStore
from tests.chaos.checkpoint_writer import LIMITS, TABLE
from tests.support.child import WriterProcess
from tests.support.history import Event, Note
from tests.support.tables import running_tables

MODULE = "tests.chaos.checkpoint_writer"
Rows = dict[str, str]


def written(folder: Path, *arguments: str, killpoint: str = "") -> WriterProcess:
    environment = {"TAILRACE_KILLPOINT": killpoint} if killpoint else {}
    return WriterProcess(folder, *arguments, environment=environment, module=MODULE)


def judge(folder: Path, events: Sequence[Event]) -> Rows:
    """Check that every key has the value acknowledged last, or one tried after it, in the table and in the log alone."""
    assert run_fsck(folder).findings == []
    with offline_log(folder) as log:
        assert check_tables(folder, log, LIMITS).findings == []
    rows = rows_of(folder)
    allowed: dict[str, set[str | None]] = {}
    for event in events:
        word, _, said = event.text.partition(" ") if isinstance(event, Note) else ("", "", "")
        if word in ("try", "done"):
            key, _, text = said.partition("=")
            value = None if text == "None" else text
            allowed[key] = {value} if word == "done" else {*allowed.get(key, {None}), value}
    for key in {*allowed, *rows}:
        assert rows.get(key) in allowed.get(key, {None}), f"{key} is {rows.get(key)}, and may be one of {allowed.get(key)}"
    for path in folder.glob(f"{FILE_NAME}*"):
        path.unlink()
    assert rows_of(folder) == rows
    return rows


def rows_of(folder: Path) -> Rows:
    """Return the rows as the next start serves them."""

    async def read() -> Rows:
        store = EmbeddedStore.open(folder, limits=LIMITS)
        try:
            async with running_tables(folder, store, limits=LIMITS) as sql:
                if sql.broker.tables.find(TABLE) is None:
                    return {}
                return {str(key): str(value) for key, value in await sql.rows(f"SELECT k, v FROM {TABLE}")}
        finally:
            store.close()

    return asyncio.run(read())


@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize("name", CHECKPOINT_KILLPOINTS)
def test_a_kill_in_a_checkpoint_leaves_a_whole_one_or_none(name: str, passes: int, tmp_path: Path) -> None:
    writer = written(tmp_path / "data", "--writes", "400", killpoint=f"{name}:{passes}")
    assert writer.wait() == EXIT_CODE, f"{name} was not passed {passes} times; {writer.errors}"
    judge(tmp_path / "data", writer.events)


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize("name", REBUILD_KILLPOINTS)
def test_a_kill_while_the_file_is_made_again_loses_nothing(
    name: str, is_missing: bool, finished: tuple[Path, Sequence[Event]], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(finished[0], folder)
    if is_missing:
        (folder / FILE_NAME).unlink()
    else:
        damaged = bytearray((folder / FILE_NAME).read_bytes())
        damaged[28] ^= 1
        (folder / FILE_NAME).write_bytes(damaged)
    writer = written(folder, "--writes", "0", killpoint=f"{name}:1")
    assert writer.wait() == EXIT_CODE, f"{name} was not passed; {writer.errors}"
    if name in ("rebuild.half", "rebuild.made") and not is_missing:
        # Until the new file replaces it, the old one stays as it is.
        assert (folder / FILE_NAME).read_bytes() == damaged
    assert rows_of(folder)
    judge(folder, finished[1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[Event]]:
    """Make a folder whose log has a checkpoint and some changes after it, by a program that ended normally."""
    folder = tmp_path_factory.mktemp("finished") / "data"
    writer = written(folder, "--writes", "300")
    assert writer.wait() == 0, writer.errors
    assert Note("deleted") in writer.events
    with offline_log(folder) as log:
        assert log.range(b"checkpoint/")
    return folder, writer.events


@pytest.mark.timeout(0)
def test_rows_are_right_after_sigkill_again_and_again(tmp_path: Path, chaos_seed: int, kill_cycles: int) -> None:
    moments = random.Random(chaos_seed)
    events: list[Event] = []
    for cycle in range(max(2, kill_cycles // 6)):
        writer = written(tmp_path / "data", "--run", str(cycle))
        writer.wait_for_note("open")
        time.sleep(moments.uniform(0.0, 0.6))
        writer.kill()
        events += writer.events
        judge(tmp_path / "data", events)
    assert any(isinstance(event, Note) and event.text.startswith("done") for event in events)
