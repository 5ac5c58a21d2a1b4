"""A PostgreSQL, a Tailrace server that captures it, and a faulty network between them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import httpx
import psutil

from tests.support.api import Api
from tests.support.change_replay import ChangeReader
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess

SOURCE = "shop"
PASSWORD_VARIABLE = "SHOP_PASSWORD"  # noqa: S105
STREAMING_SECONDS = 60.0


class SourceRow(NamedTuple):
    """What `system.sources` shows."""

    state: str
    error: str | None
    advice: str | None
    position: str | None
    retained_bytes: int | None
    slot: str
    tables: int


class CapturedSource:
    """`postgres` is reached through `network`; `point_at` of the network leads to another server."""

    def __init__(self, postgres: PostgresServer, server: ServerProcess, network: FaultyProxy, name: str = SOURCE) -> None:
        self.postgres = postgres
        self.server = server
        self.network = network
        self.name = name
        self.database = DATABASE

    @property
    def api(self) -> Api:
        return Api(self.server.url)

    def create(self, tables: str = "public.*", **options: str) -> None:
        """Create the source and wait until it streams."""
        self.api.sql(self.statement(tables, **options))
        self.await_state("streaming")

    def statement(self, tables: str = "public.*", suffix: str = "", user: str = APP, **options: str) -> str:
        given = {"tables": tables, "snapshot": "none", "password_env": PASSWORD_VARIABLE, **options}
        url = f"postgresql://{user}@{self.network.url.removeprefix('http://')}/{self.database}"
        texts = ", ".join(f"{name} = '{value}'" for name, value in given.items())
        return f"CREATE SOURCE {self.name} FROM POSTGRES '{url}' WITH ({texts}){suffix}"

    def row(self) -> SourceRow:
        columns = ", ".join(SourceRow._fields)
        rows = self.api.sql(f"SELECT {columns} FROM system.sources WHERE name = '{self.name}'")
        assert len(rows) == 1, f"system.sources has {len(rows)} rows for {self.name}"
        return SourceRow(*rows[0])

    def await_state(self, *states: str, seconds: float = STREAMING_SECONDS) -> SourceRow:
        """Wait for one of the states and return the row that shows it."""
        found: list[Any] = [None]

        def is_there() -> bool:
            with suppress(URLError, ConnectionError):
                found[0] = self.row()
            return found[0] is not None and found[0].state in states

        try:
            eventually(is_there, f"the state {' or '.join(states)}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: it is {found[0]}; the server said {self.server.stderr[-3000:]}") from None
        row: SourceRow = found[0]
        return row

    def captures(self) -> list[psutil.Process]:
        """Return the processes that capture, which the server has started."""
        return captures_of(self.server.pid)

    def kill_captures(self) -> int:
        """SIGKILL. Return how many there were."""
        return kill_captures(self.server.pid)

    def insert(self, query: str, *values: object) -> None:
        self.postgres.ask(query, *values, database=self.database, user=APP)

    def events(self) -> list[dict[str, Any]]:
        """Return the values of all events so far, in the order of the log."""
        with ChangeReader(self.server.url, self.name) as reader:
            reader.poll()
            return [
                {"table": event.table, "op": event.op, "key": event.key.decode(), "tx": event.tx, "new": event.new}
                for event in reader.events
            ]

    def await_events(self, count: int, seconds: float = STREAMING_SECONDS) -> list[dict[str, Any]]:
        """Wait for so many events, and return them. More are an error."""
        eventually(lambda: len(self.events()) >= count, f"{count} events of {self.name}", seconds)
        events = self.events()
        assert len(events) == count, f"there are {len(events)} events, not {count}: {events[-5:]}"
        return events

    def slot(self) -> dict[str, Any]:
        """Return the slot as PostgreSQL shows it: empty if there is none."""
        rows = self.postgres.ask("SELECT to_jsonb(s) FROM pg_replication_slots AS s WHERE slot_name = %s", self.row().slot)
        return dict(rows[0][0]) if rows else {}


@contextmanager
def captured_source(folder: Path, postgres: PostgresServer, *flags: str, name: str = SOURCE) -> Iterator[CapturedSource]:
    """Run a server, on the same port after each start, whose source is to be created."""
    with FaultyProxy(postgres.address) as network:
        address = f"127.0.0.1:{free_port()}"
        server = ServerProcess(folder / "data", "--http", address, *flags, environment={PASSWORD_VARIABLE: PASSWORDS[APP]})
        with server:
            yield CapturedSource(postgres, server, network, name)


class ChangeWatch:
    """Reads along while a load runs, as consumers do, and goes on when the server comes back."""

    def __init__(self, url: str, source: str = SOURCE, pause_seconds: float = 0.1) -> None:
        self.reader = ChangeReader(url, source)
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "ChangeWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.reader.__exit__()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_seconds):
            with suppress(httpx.HTTPError):
                self.reader.poll()


def captures_of(server_pid: int) -> list[psutil.Process]:
    """Return the processes that capture sources, which the server has started."""
    with suppress(psutil.NoSuchProcess):
        return [child for child in psutil.Process(server_pid).children(recursive=True) if _is_capture(child)]
    return []


def kill_captures(server_pid: int) -> int:
    """SIGKILL. Return how many there were."""
    found = captures_of(server_pid)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return len(found)


def _is_capture(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return any("capture" in part for part in process.cmdline())
    return False
