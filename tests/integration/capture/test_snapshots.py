"""Snapshots beside transactions and faults: each row is there once, then its changes; and what the log lacks is repaired."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.capture.test_model import (
    BETWEEN,
    CAUGHT_UP_SECONDS,
    OWNERS,
    cut_connection,
    judge_events,
    kill_capture,
    kill_postgres,
    kill_server,
)
from tests.support.captured_source import CapturedSource, ChangeWatch, captured_source
from tests.support.change_replay import ChangeEvent, ChangeReader, replay
from tests.support.eventually import eventually
from tests.support.postgres_load import Load, create_tables
from tests.support.postgres_server import PostgresServer

_ROWS = 20_000
_CHUNK_BYTES = 64 << 10
"""Small, so that tables have many chunks."""
_FAULTS: tuple[Callable[[CapturedSource, random.Random], None], ...] = (
    kill_capture,
    kill_server,
    cut_connection,
    kill_postgres,
)


def _flags(folder: Path) -> tuple[str, str]:
    config = folder / "tailrace.toml"
    config.write_text(f"[limits]\nsnapshot_chunk_bytes = {_CHUNK_BYTES}\n")
    return "--config", str(config)


def _fill(source: CapturedSource, table: str, rows: int = _ROWS) -> None:
    source.insert(f"CREATE TABLE {table} (id int PRIMARY KEY, n int NOT NULL, body text)")
    source.insert(f"INSERT INTO {table} SELECT g, 0, repeat('x', 100) FROM generate_series(1, {rows}) g")


def _await_snapshot(source: CapturedSource) -> None:
    row: list[object] = []

    def is_over() -> bool:
        row[:] = source.api.sql("SELECT state, snapshot_state, snapshot_table, error FROM system.sources")[0]
        return row[:2] == ["streaming", None]

    try:
        eventually(is_over, "the end of the snapshot", CAUGHT_UP_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {row}; the server said {source.server.stderr[-3000:]}") from None


def _events(source: CapturedSource) -> list[ChangeEvent]:
    with ChangeReader(source.server.url, source.name) as reader:
        reader.poll()
        return reader.events


def _equals_tables(source: CapturedSource, table: str) -> list[ChangeEvent]:
    """Wait until the replayed events equal the table, and return them."""
    rows = set(source.postgres.ask(f"SELECT id, n FROM {table}", database=source.database))
    found: list[ChangeEvent] = []

    def is_equal() -> bool:
        found[:] = [event for event in _events(source) if event.table == f"public.{table}"]
        last = None
        for transaction in replay(found):
            last = transaction
        replayed = last.tables[f"public.{table}"].rows() if last else ()
        return {(int(row["id"]), int(row["n"])) for row in replayed} == rows

    eventually(is_equal, f"the events of {table} equal its {len(rows)} rows", CAUGHT_UP_SECONDS)
    return found


class _Updates:
    """Changes rows all the time, two of them in each transaction."""

    def __init__(self, source: CapturedSource, table: str, rows: int = _ROWS) -> None:
        self._source = source
        self._table = table
        self._rows = rows
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def __enter__(self) -> "_Updates":
        self._thread.start()
        eventually(lambda: self.count > 10, "some updates")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        choice = random.Random(1)
        with self._source.postgres.connect(self._source.database) as connection:
            while not self._stopping.is_set():
                ids = sorted(choice.sample(range(1, self._rows + 1), 2))
                connection.execute(f"UPDATE {self._table} SET n = n + 1 WHERE id = ANY (%s)".encode(), (ids,))
                self.count += 1


def test_rows_come_once_and_their_changes_behind_them(tmp_path: Path, postgres: PostgresServer) -> None:
    with captured_source(tmp_path, postgres, *_flags(tmp_path)) as source:
        source.database = postgres.create_database("rows_once")
        _fill(source, "items")
        with _Updates(source, "items"):
            source.create(snapshot="initial")
            _await_snapshot(source)
        events = _equals_tables(source, "items")
        assert Counter(event.op for event in events if event.is_of_snapshot) == {"insert": _ROWS}
        first: dict[bytes, ChangeEvent] = {}
        for event in events:
            first.setdefault(event.key, event)
        assert all(event.is_of_snapshot for event in first.values()), "a change came before its row"
        assert any(not event.is_of_snapshot for event in events)


@pytest.mark.long
def test_rows_of_a_chunk_that_breaks_off_are_compared_with_the_table(tmp_path: Path, postgres: PostgresServer) -> None:
    rows = 8 * _ROWS
    with captured_source(tmp_path, postgres) as source:
        source.database = postgres.create_database("broken_off")
        _fill(source, "items", rows)
        # One chunk, which takes seconds to come.
        source.network.delay_seconds = 0.05
        source.api.sql(source.statement(snapshot="initial"))
        some = "SELECT end_offset FROM system.partitions WHERE topic = '_changes.shop.public.items' AND end_offset > 0"
        eventually(lambda: source.api.sql(some) != [], "some rows in the log")
        ended = postgres.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active'"
        )
        assert ended == [(True,)]
        source.network.delay_seconds = 0.0
        _await_snapshot(source)
        events = _equals_tables(source, "items")
        assert Counter(event.op for event in events) == {"insert": rows}
        assert len({event.tx for event in events}) == 2, "the rest was not read in a snapshot of its own"


def test_wal_is_confirmed_while_rows_are_read(tmp_path: Path, postgres: PostgresServer) -> None:
    with captured_source(tmp_path, postgres, *_flags(tmp_path)) as source:
        source.database = postgres.create_database("confirmed")
        _fill(source, "items", 5 * _ROWS)
        source.api.sql(source.statement(snapshot="initial"))
        eventually(lambda: _snapshot_state(source) == "reading", "a snapshot that is being read")
        source.insert("UPDATE items SET n = n + 1 WHERE id <= 10")
        ((end,),) = postgres.ask("SELECT pg_current_wal_lsn()::text", database=source.database)
        asked = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        slot = source.row().slot
        eventually(lambda: postgres.ask(asked, end, slot) == [(True,)], "the slot is confirmed behind the update")
        assert _snapshot_state(source) == "reading", "the snapshot was over before: give it more rows"
        _await_snapshot(source)
        events = _equals_tables(source, "items")
        assert Counter(event.op for event in events) == {"insert": 5 * _ROWS, "update": 10}


def _snapshot_state(source: CapturedSource) -> object:
    return source.api.sql("SELECT snapshot_state FROM system.sources")[0][0]


@pytest.mark.long
@pytest.mark.timeout(0)
def test_snapshots_beside_transactions_and_faults(tmp_path: Path, capture_seed: int) -> None:
    choice = random.Random(capture_seed)
    flags = _flags(tmp_path)
    with PostgresServer(tmp_path / "postgres") as postgres, captured_source(tmp_path, postgres, *flags) as source:
        with postgres.connect() as connection:
            create_tables(connection, OWNERS)
        load = Load(OWNERS, capture_seed, postgres.connect, pause_seconds=0.2)
        load.start()
        load.await_committed(5 * BETWEEN, CAUGHT_UP_SECONDS)
        source.api.sql(source.statement(snapshot="initial"))
        with ChangeWatch(source.server.url) as watch:
            for number in range(len(_FAULTS) + 2):
                time.sleep(choice.uniform(0.0, 2.0))
                _FAULTS[number % len(_FAULTS)](source, choice)
                if number >= len(_FAULTS):
                    _await_snapshot(source)
                    source.api.sql(f"ALTER SOURCE {source.name} SNAPSHOT")
            load.await_committed(load.committed + BETWEEN, CAUGHT_UP_SECONDS)
            load.stop()
            watch.stop()
            _await_snapshot(source)
            judge_events(source, watch.reader)


def test_a_table_that_is_added_later_is_read_while_others_stream(tmp_path: Path, postgres: PostgresServer) -> None:
    with captured_source(tmp_path, postgres, *_flags(tmp_path)) as source:
        source.database = postgres.create_database("added_later")
        _fill(source, "first", 100)
        _fill(source, "later")
        source.create("public.first", snapshot="initial")
        with _Updates(source, "later"), _Updates(source, "first", 100) as updates:
            source.api.sql("ALTER SOURCE shop SET (tables = 'public.*')")
            eventually(lambda: _count(source, "later") >= _ROWS, "the rows of the table that was added", CAUGHT_UP_SECONDS)
            before = _count(source, "first")
            done = updates.count
            eventually(lambda: updates.count > done + 20, "more updates")
            eventually(lambda: _count(source, "first") > before, "changes of the other table")
        events = _equals_tables(source, "later")
        assert Counter(event.key for event in events if event.op == "insert").most_common(1)[0][1] == 1
        assert sum(event.op == "insert" for event in events) == _ROWS
        _equals_tables(source, "first")


def _count(source: CapturedSource, table: str) -> int:
    if not source.api.sql(f"SELECT 1 FROM system.source_tables WHERE name = 'shop.public.{table}'"):
        return 0
    return int(source.api.sql(f"SELECT count(*) FROM shop.public.{table}")[0][0])


def test_a_snapshot_on_demand_writes_what_the_log_does_not_have(tmp_path: Path, postgres: PostgresServer) -> None:
    with captured_source(tmp_path, postgres, *_flags(tmp_path)) as source:
        source.database = postgres.create_database("on_demand")
        _fill(source, "items", 1_000)
        source.create(snapshot="on demand")
        source.insert("UPDATE items SET n = 5 WHERE id <= 10")
        source.insert("INSERT INTO items VALUES (2000, 1, 'new')")
        source.await_events(11)
        source.api.sql("ALTER SOURCE shop SNAPSHOT TABLE public.items")
        source.await_events(11 + 990)
        _await_snapshot(source)
        source.api.sql("ALTER SOURCE shop SNAPSHOT")
        _await_snapshot(source)
        source.insert("DELETE FROM items WHERE id = 500")
        events = _events(source)
        source.await_events(11 + 990 + 1)
        added = [event for event in events if event.is_of_snapshot]
        assert {event.op for event in added} == {"insert"}
        assert {int(event.new["id"]) for event in added if event.new} == set(range(11, 1001))


def test_a_table_that_is_not_captured_is_named(tmp_path: Path, postgres: PostgresServer) -> None:
    with captured_source(tmp_path, postgres) as source:
        source.database = postgres.create_database("not_captured")
        _fill(source, "items", 10)
        source.create()
        with pytest.raises(AssertionError, match=r"captures no table 'public\.itens'.*public\.items"):
            source.api.sql("ALTER SOURCE shop SNAPSHOT TABLE public.itens")


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_lost_slot_is_repaired_by_a_resync_that_writes_differences(
    tmp_path: Path, postgres: PostgresServer, identity: str
) -> None:
    with captured_source(tmp_path, postgres, *_flags(tmp_path)) as source:
        source.database = postgres.create_database(f"resync_{identity.lower()}")
        _fill(source, "items", 1_000)
        source.insert(f"ALTER TABLE items REPLICA IDENTITY {identity}")
        source.create(snapshot="initial")
        source.await_events(1_000)
        slot = source.row().slot
        source.server.kill()
        eventually(
            lambda: not postgres.ask("SELECT 1 FROM pg_stat_replication WHERE application_name LIKE '%shop%'"), "no capture"
        )
        postgres.ask("SELECT pg_drop_replication_slot(%s)", slot)
        source.insert("UPDATE items SET n = 7 WHERE id <= 5")
        source.insert("DELETE FROM items WHERE id BETWEEN 11 AND 20")
        source.insert("INSERT INTO items VALUES (5000, 3, 'missed')")
        source.server.start()
        failed = source.await_state("failed")
        assert "RESYNC" in (failed.advice or "")
        source.insert("UPDATE items SET n = 8 WHERE id = 30")
        time.sleep(1.0)
        assert len(_events(source)) == 1_000, "something was captured without a word"
        source.api.sql("ALTER SOURCE shop RESYNC")
        source.await_state("streaming")
        events = source.await_events(1_000 + 5 + 10 + 1 + 1)
        assert Counter(event["op"] for event in events[1_000:]) == {"update": 6, "delete": 10, "insert": 1}
        _await_snapshot(source)
        source.insert("UPDATE items SET n = 9 WHERE id = 30")
        source.await_events(1_000 + 17 + 1)
        _equals_tables(source, "items")
