"""A PostgreSQL beside the server, which captures it: behind a faulty network, killed and started again."""

import shutil
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.support.boundaries import BOUNDARY, BoundaryJudge, compare_table
from tests.support.change_replay import ChangeReader, ReplayError, replay
from tests.support.eventually import eventually
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.proxy import FaultyProxy

PASSWORD_VARIABLE = "POSTGRES_SOURCE_PASSWORD"  # noqa: S105
CAPTURED_SECONDS = 150.0


class DatabaseProcess:
    """Runs at most one PostgreSQL, and none unless a workload starts it."""

    def __init__(self) -> None:
        self.environment = {PASSWORD_VARIABLE: PASSWORDS[APP]}
        """What the server needs to log in."""
        self._folder: Path | None = None
        self._postgres: PostgresServer | None = None
        self._network: FaultyProxy | None = None

    @property
    def is_wanted(self) -> bool:
        return self._postgres is not None

    @property
    def network(self) -> FaultyProxy:
        """What lies between the database and its capture. Its own clients connect to it directly."""
        assert self._network is not None
        return self._network

    @property
    def url(self) -> str:
        return f"postgresql://{APP}@{self.network.url.removeprefix('http://')}/{DATABASE}"

    def start(self) -> None:
        # Not below the folder of the run: PostgreSQL may run as another user.
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-postgres-"))
        self._postgres = PostgresServer(self._folder / "data").__enter__()
        self._network = FaultyProxy(self._postgres.address).__enter__()

    def connect(self) -> "psycopg.Connection[Any]":
        assert self._postgres is not None
        return self._postgres.connect()

    def kill_and_start(self) -> None:
        assert self._postgres is not None
        self._postgres.kill()
        self._postgres.start()

    def close(self) -> None:
        if self._network is not None:
            self._network.__exit__()
        if self._postgres is not None:
            self._postgres.__exit__()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class ReplayedSource:
    """Holds all events of a source against the tables that it captures, at every transaction boundary."""

    def __init__(self, database: DatabaseProcess, url: str, source: str, tables: Sequence[str]) -> None:
        self._database = database
        self._url = url
        self._source = source
        self._tables = tables
        self.transactions = 0
        self.events = 0

    def findings(self) -> tuple[str, ...]:
        """Wait until everything is captured. Return what is wrong."""
        with self._database.connect() as connection, ChangeReader(self._url, self._source) as reader:
            committed = {name for (name,) in connection.execute("SELECT id FROM boundary")}

            def has_all() -> bool:
                reader.poll()
                return sum(event.table == BOUNDARY for event in reader.events) >= len(committed)

            try:
                eventually(has_all, f"all {len(committed)} transactions are captured", CAPTURED_SECONDS)
                events = [event for event in reader.events if event.table in self._tables]
                judge = BoundaryJudge(connection)
                last = deque(judge.judging(replay(events)), maxlen=1)
                self.transactions, self.events = len(judge.names), len(events)
                if judge.names != committed:
                    return (f"transactions were captured that were not committed: {sorted(judge.names - committed)[:5]}",)
                for table in self._tables if last else ():
                    compare_table(connection, table, last[0])
            except (AssertionError, ReplayError) as error:
                return (str(error)[:2000],)
        return ()
