"""Random transactions beside kills and cuts: the events, replayed, are the tables, at every transaction boundary.

`pytest tests/integration/capture/test_model.py --capture-faults 100` is the long form.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.boundaries import BOUNDARY, BoundaryJudge, compare_table
from tests.support.captured_source import CapturedSource, ChangeWatch, captured_source
from tests.support.change_replay import ChangeReader, replay
from tests.support.eventually import eventually
from tests.support.postgres_load import Load, all_tables, create_tables
from tests.support.postgres_server import PostgresServer

OWNERS = (1, 2, 3)
CAUGHT_UP_SECONDS = 120.0
BETWEEN = 12
"""Transactions that are committed before the next fault, so that each comes upon work."""


def kill_postgres(source: CapturedSource, choice: random.Random) -> None:
    source.postgres.kill()
    source.postgres.start()


def restart_postgres(source: CapturedSource, choice: random.Random) -> None:
    source.postgres.restart(choice.choice(("fast", "immediate")))


def kill_server(source: CapturedSource, choice: random.Random) -> None:
    source.server.kill()
    source.server.start()


def stop_server(source: CapturedSource, choice: random.Random) -> None:
    source.server.terminate()
    source.server.start()


def kill_capture(source: CapturedSource, choice: random.Random) -> None:
    eventually(lambda: source.kill_captures() > 0, "a process that captures")


def cut_connection(source: CapturedSource, choice: random.Random) -> None:
    for _ in range(choice.randint(1, 3)):
        source.network.reset_connections()
        time.sleep(choice.uniform(0, 0.3))


def stall_connection(source: CapturedSource, choice: random.Random) -> None:
    """Nothing comes through for a while, as after a pulled cable; then the connections break."""
    source.network.is_silent = True
    time.sleep(choice.uniform(0.5, 2))
    source.network.is_silent = False
    source.network.reset_connections()


def kill_both(source: CapturedSource, choice: random.Random) -> None:
    source.server.kill()
    source.postgres.kill()
    source.postgres.start()
    source.server.start()


FAULTS: tuple[Callable[[CapturedSource, random.Random], None], ...] = (
    kill_postgres,
    kill_capture,
    kill_server,
    cut_connection,
    stall_connection,
    restart_postgres,
    stop_server,
    kill_both,
)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_replayed_events_equal_the_tables_at_every_boundary(tmp_path: Path, capture_seed: int, capture_faults: int) -> None:
    choice = random.Random(capture_seed)
    with PostgresServer(tmp_path / "postgres") as postgres, captured_source(tmp_path, postgres) as source:
        with postgres.connect() as connection:
            create_tables(connection, OWNERS)
        source.create()
        load = Load(OWNERS, capture_seed, postgres.connect)
        with ChangeWatch(source.server.url) as watch:
            load.start()
            for number in range(capture_faults):
                load.await_committed(load.committed + BETWEEN, CAUGHT_UP_SECONDS)
                fault = FAULTS[number] if number < len(FAULTS) else choice.choice(FAULTS)
                print(f"after {load.committed} transactions: {fault.__name__}")
                fault(source, choice)
            load.await_committed(load.committed + BETWEEN, CAUGHT_UP_SECONDS)
            load.stop()
            watch.stop()
            judge_events(source, watch.reader)
    assert load.committed > capture_faults * BETWEEN


def test_replayed_events_equal_the_tables_without_faults(tmp_path: Path, capture_seed: int) -> None:
    with PostgresServer(tmp_path / "postgres") as postgres, captured_source(tmp_path, postgres) as source:
        with postgres.connect() as connection:
            create_tables(connection, OWNERS)
        source.create()
        load = Load(OWNERS, capture_seed, postgres.connect, pause_seconds=0.0)
        with ChangeWatch(source.server.url) as watch:
            load.start()
            load.await_committed(100, CAUGHT_UP_SECONDS)
            load.stop()
            watch.stop()
            judge_events(source, watch.reader)


def judge_events(source: CapturedSource, reader: ChangeReader) -> None:
    """Wait until all transactions are captured, and hold the events against the tables."""
    committed = {name for (name,) in source.postgres.ask("SELECT id FROM boundary")}

    def has_all() -> bool:
        reader.poll()
        captured = sum(event.table == BOUNDARY for event in reader.events)
        assert captured <= len(committed), f"{captured} transactions were captured, and {len(committed)} committed"
        return captured == len(committed)

    source.await_state("streaming")
    try:
        eventually(has_all, "all transactions are captured", CAUGHT_UP_SECONDS)
    except AssertionError as error:
        captured = sum(event.table == BOUNDARY for event in reader.events)
        raise AssertionError(f"{error}: {captured} of {len(committed)}; {source.row()}; {source.slot()}") from None
    reader.check_looks()
    with ChangeReader(source.server.url, source.name) as again:
        again.poll()
        assert again.events == reader.events, "a second reader got other events than the one that read along"
    with source.postgres.connect() as connection:
        judge = BoundaryJudge(connection)
        last = deque(judge.judging(replay(reader.events)), maxlen=1)
        assert judge.names == committed
        for table in all_tables(OWNERS):
            compare_table(connection, table, last[0])
    print(f"{len(committed)} transactions, {len(reader.events)} events, {judge.judged} digests, {len(reader.looks)} looks")
