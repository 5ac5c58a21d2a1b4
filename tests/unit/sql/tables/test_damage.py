"""Bits of the tables' file change behind the server's back: no answer is wrong, and the file is made again from the log."""

import asyncio
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.commit import Changes
from tailrace.model.errors import CorruptionError, TablesBehindError, TablesDamagedError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.table import changes_partition
from tailrace.sql.tables.database import abandon
from tailrace.sql.tables.table_file import checksum_vfs
from tailrace.sql.tables.tables import FILE_NAME, Tables
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql, as_older_version

FLIPS = 120
ALL = "SELECT * FROM app.t ORDER BY id"
OTHER = "SELECT * FROM app.u ORDER BY a, b"
WAL = f"{FILE_NAME}-wal"


def flipped(path: Path, bit: int) -> None:
    """Change one bit of a file, in place."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes((byte ^ 1 << bit % 8,)))
        file.flush()
        os.fsync(file.fileno())


async def open_tables(folder: Path, broker: Broker) -> TableSql:
    return TableSql(broker, await Tables.open(folder, broker, ManualClock(), DEFAULT_LIMITS))


async def given_rows(sql: TableSql) -> None:
    """Rows on some pages, with values that span pages, a key of two columns, and pages that nothing uses any more."""
    await sql.run("CREATE TABLE app.t (id bigint PRIMARY KEY, name text, amount decimal(10, 2))")
    await sql.run("CREATE TABLE app.u (a text, b bigint, PRIMARY KEY (a, b))")
    rows = [[id, f"name {id} " * (900 if id % 40 == 0 else 3), f"{id}.25"] for id in range(400)]
    await sql.run("INSERT INTO app.t VALUES (?, ?, ?)", rows)
    await sql.run("INSERT INTO app.u VALUES (?, ?)", [[f"k{id % 7}", id] for id in range(300)])
    await sql.run("DELETE FROM app.t WHERE id >= 120 AND id < 200")


def copy_files(folder: Path, target: Path) -> None:
    """The tables' files as a kill would leave them."""
    target.mkdir()
    for path in folder.glob(f"{FILE_NAME}*"):
        shutil.copy(path, target)


def append_uncommitted_frame(wal: Path) -> None:
    """By SQLite itself: a transaction that is too large for its memory writes frames before it commits."""
    folder = wal.parent
    connection = apsw.Connection(str(folder / FILE_NAME), vfs=checksum_vfs())
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("cache_size", 5)
    before = wal.stat().st_size
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO \"app.t\" VALUES (?, 'never committed')", ((-id,) for id in range(1, 3000)))
    torn = {path.name: path.read_bytes() for path in folder.glob(f"{FILE_NAME}*") if not path.name.endswith("-shm")}
    connection.execute("ROLLBACK")
    abandon(connection)
    for path in folder.glob(f"{FILE_NAME}*"):
        path.unlink()
    for name, content in torn.items():
        (folder / name).write_bytes(content)
    assert wal.stat().st_size > before


def bits(size: int, count: int, seed: int, first: Iterable[int] = ()) -> list[int]:
    chance = random.Random(seed)
    return [*first, *(chance.randrange(size * 8) for _ in range(count))]


HEADER_BITS = [8 * byte + bit for byte in (0, 16, 17, 18, 19, 20, 21, 24, 28, 44, 60, 63) for bit in (0, 3, 7)]


async def patiently(sql: TableSql, text: str) -> tuple[list[tuple[object, ...]], int]:
    """The answer, and how often it was refused before it came. Every refusal says to try again."""
    refusals = 0
    while True:
        try:
            return await sql.rows(text), refusals
        except (TablesDamagedError, TablesBehindError) as error:
            assert error.retriable
            refusals += 1
            await asyncio.sleep(0.001)


@on_loop
async def test_no_flipped_bit_of_the_file_makes_a_wrong_answer(tmp_path: Path) -> None:
    """Each is found while the server runs, by whoever reads the page, and at the start."""
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker)
        await given_rows(sql)
        truth = [await sql.rows(ALL), await sql.rows(OTHER)]
        await sql.tables.close()
        sound = tmp_path / "sound"
        shutil.copy(tmp_path / FILE_NAME, sound)
        found = 0
        for number, bit in enumerate(bits(sound.stat().st_size, FLIPS, 1, HEADER_BITS)):
            shutil.copy(sound, tmp_path / FILE_NAME)
            is_running = number % 2 == 1
            if is_running:
                sql = await open_tables(tmp_path, broker)
            flipped(tmp_path / FILE_NAME, bit)
            if not is_running:
                sql = await open_tables(tmp_path, broker)
            before = broker.changes.stats.rebuilds
            refusals = 0
            for text, rows in zip((ALL, OTHER), truth, strict=True):
                answer, refused = await patiently(sql, text)
                assert answer == rows, f"bit {bit} gave a wrong answer"
                refusals += refused
            if refusals:
                await until(lambda: broker.changes.stats.rebuilds > before)  # noqa: B023  awaited at once
            found += bool(refusals)
            assert await sql.rows(ALL) == truth[0]
            await sql.run("INSERT INTO app.t VALUES (1000, 'new', 1)")
            await sql.run("DELETE FROM app.t WHERE id = 1000")
            await sql.tables.close()
        print(f"{found} of {FLIPS + len(HEADER_BITS)} flips were met by a query")
        assert found


@pytest.mark.parametrize("is_backfilled", [True, False])
@on_loop
async def test_no_flipped_bit_of_the_write_ahead_log_makes_a_wrong_answer(is_backfilled: bool, tmp_path: Path) -> None:
    """As a kill leaves it, with its pages in the file or not. The last transaction divides a page that those before it left
    alone: of half of that page's rows the log of changes has nothing to tell."""
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker)
        await sql.run("CREATE TABLE app.t (id bigint PRIMARY KEY, name text)")
        insert = "INSERT INTO app.t VALUES (?, ?)"
        await sql.run(insert, [[100 * id, "x" * 60] for id in range(1000)])
        await sql.tables.close()
        sql = await open_tables(tmp_path, broker)
        for region in (2, 5, 8):
            await sql.run(insert, [[10_000 * region + 1 + id, "y" * 60] for id in range(90)])
        if is_backfilled:
            await until(
                lambda: (tmp_path / f"{FILE_NAME}.backfill").exists() and sql.tables._writer._storage.connection._wal_pages == 0
            )
        killed = tmp_path / "killed"
        copy_files(tmp_path, killed)
        truth = await sql.rows(ALL)
        await sql.tables.close()
        sound = tmp_path / "sound"
        shutil.copytree(killed, sound)
        # As a kill leaves it in the middle of a transaction: with frames that no commit follows.
        append_uncommitted_frame(sound / WAL)
        again = await open_tables(sound, broker)
        assert (again.tables.replayed, broker.changes.stats.rebuilds) == (0, 0), "a sound file was made again"
        await again.tables.close()
        size = (killed / WAL).stat().st_size
        # The head of the log and of each frame, and some bits of the pages.
        heads = [8 * (at + byte) for at in range(32, size, 4096 + 24) for byte in (7, 8, 20)]
        for bit in bits(size, 15, 2, (*range(0, 32 * 8, 37), *heads)):
            folder = tmp_path / "copy"
            shutil.copytree(killed, folder)
            flipped(folder / WAL, bit)
            again = await open_tables(folder, broker)
            answer, _ = await patiently(again, ALL)
            assert answer == truth, f"bit {bit} gave a wrong answer"
            await again.tables.close()
            shutil.rmtree(folder)


@on_loop
async def test_a_write_that_meets_damage_is_refused_and_the_next_one_goes_through(tmp_path: Path) -> None:
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker)
        await given_rows(sql)
        truth = await sql.rows(ALL)
        await sql.tables.close()
        size = (tmp_path / FILE_NAME).stat().st_size
        for page in range(8, size // 4096):
            flipped(tmp_path / FILE_NAME, 8 * (page * 4096 + 2000))
        sql = await open_tables(tmp_path, broker)
        with pytest.raises(TablesDamagedError) as refusal:
            await sql.run("UPDATE app.t SET name = 'x' WHERE name LIKE 'name 3%'")
        assert refusal.value.outcome == "failed"
        assert len(await sql.events("app.t")) == 400 + 80, "what was refused is in the log"
        assert (await patiently(sql, ALL))[0] == truth
        assert (await sql.run("UPDATE app.t SET name = 'x' WHERE id = 3")).affected == 1
        assert broker.changes.stats.rebuilds == 1
        await sql.tables.close()


@on_loop
async def test_a_file_without_checksums_is_made_again_with_them(tmp_path: Path) -> None:
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker)
        await given_rows(sql)
        truth = await sql.rows(ALL)
        await sql.tables.close()
        as_older_version(tmp_path / FILE_NAME)
        sql = await open_tables(tmp_path, broker)
        assert await sql.rows(ALL) == truth
        await sql.tables.close()
        header = (tmp_path / FILE_NAME).read_bytes()[:100]
        assert (header[20], header[63]) == (8, 2)


@on_loop
async def test_a_file_of_an_older_version_is_the_truth_where_the_log_lost_changes(tmp_path: Path) -> None:
    """Its rows are taken over, and a checkpoint of them is in the log before anything else can happen to the file."""
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker)
        await given_rows(sql)
        truth = await sql.rows(ALL)
        await sql.tables.close()
        as_older_version(tmp_path / FILE_NAME)
        table = broker.tables.get("app.t")
        broker.store.commit(Changes(trims=[(changes_partition(table), broker.changes.bounds(table).end)]))
        sql = await open_tables(tmp_path, broker)
        assert await sql.rows(ALL) == truth
        await until(lambda: broker.changes.checkpoint(table) is not None)
        await sql.run("UPDATE app.t SET name = 'x' WHERE id = 3")
        truth = await sql.rows(ALL)
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker)
        assert await sql.rows(ALL) == truth
        await sql.tables.close()


@on_loop
async def test_damage_that_nothing_can_mend_is_said_and_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker)
        await given_rows(sql)
        await sql.tables.close()
        table = broker.tables.get("app.t")
        broker.store.commit(Changes(trims=[(changes_partition(table), broker.changes.bounds(table).end)]))
        flipped(tmp_path / FILE_NAME, 8 * 30)
        damaged = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(CorruptionError, match=r"'app\.t' and has no checkpoint of their rows: restore a copy"):
            await open_tables(tmp_path, broker)
        assert (tmp_path / FILE_NAME).read_bytes() == damaged
