"""`tailrace pipeline` in its own process: changes to route, the speed of routing, and a check that each was routed once."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.audit import AuditFailure
from bench.http.client import HttpClient
from bench.http.server import HttpServer, cpu_seconds_of
from bench.http.tasks import InsertRows
from bench.peers.servers import PeerFailure
from bench.workspace import settle_disk

BODY_BYTES = 180
"""With the other columns a row has 200 bytes as JSON."""
_ROWS_A_REQUEST = 1_000
_CONNECTIONS = 4
_SHARES = 3
"""In how many queries the records of a topic are counted."""


class RoutedTable(NamedTuple):
    """A table with routes by the remainder of its key."""

    name: str
    topics: Sequence[str]
    changes: int

    @property
    def routed(self) -> int:
        """The number of routed records."""
        return (self.changes + 1) // 2 if len(self.topics) == 1 else self.changes


def condition(routes: int, number: int) -> str:
    """One route takes every second change; several share all changes."""
    return f"id % {max(2, routes)} = {number}"


def python_condition(routes: int, number: int) -> str:
    """The same condition, written so that Spark leaves it to Python."""
    return f"format('%s', id % {max(2, routes)}) = '{number}'"


def load_changes(
    server: HttpServer, name: str, routes: int, changes: int, written: Callable[[int, int], str] = condition
) -> RoutedTable:
    server.sql(f"CREATE TABLE {name} (id BIGINT, body TEXT, PRIMARY KEY (id))")
    topics = [f"{name}_routed_{number}" for number in range(routes)]
    for number, topic in enumerate(topics):
        server.create_topic(topic)
        where = written(routes, number)
        server.sql(f"ALTER TOPIC {topic} ADD SOURCE {name} ON INSERT WHERE ({where}) WITH (payload = 'full')")
    return more_changes(server, RoutedTable(name, topics, 0), changes)


def more_changes(server: HttpServer, table: RoutedTable, changes: int) -> RoutedTable:
    """Insert more rows and return the table."""
    with HttpClient(server) as client:
        task = InsertRows(
            table=table.name,
            first_id=table.changes,
            rows=changes,
            rows_a_request=_ROWS_A_REQUEST,
            body_bytes=BODY_BYTES,
            connections=_CONNECTIONS,
        )
        client.ask(task)
    return table._replace(changes=table.changes + changes)


def check_routed(server: HttpServer, table: RoutedTable) -> None:
    """Check that every topic has the rows of its route, each once."""
    routes = len(table.topics)
    for number, topic in enumerate(table.topics):
        expected = range(number, table.changes, max(2, routes))
        id_sql = "CAST(value ->> 'id' AS BIGINT)"
        found = [0, 0, 0]
        for share in range(_SHARES):
            # All keys at once may be more than a query can hold.
            text = f"SELECT count(*), count(DISTINCT key), sum({id_sql}) FROM {topic} WHERE {id_sql} % {_SHARES} = {share}"
            found = [total + int(each or 0) for total, each in zip(found, server.sql(text)[0], strict=True)]
        if found != [len(expected), len(expected), sum(expected)]:
            raise AuditFailure(f"{topic} has (records, keys, sum) {found}; {len(expected)} with sum {sum(expected)} were due")


_WARM_SHARE = 0.4
"""Time to warm up: Java is slow until it has compiled its hot code."""
_PATIENCE_SECONDS = 300.0
_STOP_SECONDS = 60.0


class Routed(NamedTuple):
    changes_per_second: float
    pipeline_cpu: float
    """CPU time for each change, in microseconds: Java, Python's workers and the driver together."""
    server_cpu: float


PROGRAM = ("-m", "tailrace")
"""What Python runs."""


class RouterProcess:
    def __init__(self, server: HttpServer, batch_rows: int, said: Path, *flags: str, program: Sequence[str] = PROGRAM) -> None:
        command = [
            sys.executable,
            *program,
            "pipeline",
            "--server",
            server.url,
            "--batch-rows",
            str(batch_rows),
            *flags,
        ]
        with said.open("ab") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self._process.pid)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Stop the process while the block runs. Nobody takes its lease, so it continues with it."""
        processes = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        _send(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            _send(processes, signal.SIGCONT)

    def stop(self) -> None:
        """Stop the router. It releases its lease, so that the next one need not wait."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            for child in children:
                if child.is_running():
                    child.kill()


@contextmanager
def routing(server: HttpServer, batch_rows: int, said: Path) -> Iterator[RouterProcess]:
    router = RouterProcess(server, batch_rows, said)
    try:
        yield router
    finally:
        router.stop()


class RoutingRounds:
    """Rounds of one router and one table: changes are written, then routed."""

    def __init__(self, server: HttpServer, router: RouterProcess, table: RoutedTable, batch_rows: int) -> None:
        """`table` has changes that are not routed yet; the first round routes them."""
        self._server = server
        self._router = router
        self._batch_rows = batch_rows
        self._done = 0
        self.table = table

    def first(self) -> Routed:
        """Run a round in which Java compiles most of its code."""
        return self._routed()

    def next(self, changes: int) -> Routed:
        with self._router.held_up():
            self.table = more_changes(self._server, self.table, changes)
            settle_disk()
        return self._routed()

    def check(self) -> None:
        """Check that every change was routed once."""
        check_routed(self._server, self.table)

    def _routed(self) -> Routed:
        """Measure from the end of the first batch, so that whole batches are counted."""
        begin = self._done + self._batch_rows * self.table.routed // self.table.changes
        begun: _Moment | None = None
        for at, records in self._server.await_records(self.table.topics, self.table.routed, _PATIENCE_SECONDS):
            if begun is None and records >= begin:
                begun = _Moment(at, records, self._router.cpu_seconds, self._server.cpu_seconds)
        ended = _Moment(at, records, self._router.cpu_seconds, self._server.cpu_seconds)
        self._done = records
        return _between(begun, ended, self.table.routed / self.table.changes)


def measure_router(server: HttpServer, topics: Sequence[str], changes: int, routed: int, batch_rows: int, said: Path) -> Routed:
    """Start a router for waiting changes and return how fast it routes once it is warm."""
    begun: _Moment | None = None
    with routing(server, batch_rows, said) as router:
        for at, records in server.await_records(topics, routed, _PATIENCE_SECONDS):
            if begun is None and records >= _WARM_SHARE * routed:
                begun = _Moment(at, records, router.cpu_seconds, server.cpu_seconds)
        ended = _Moment(at, records, router.cpu_seconds, server.cpu_seconds)
    return _between(begun, ended, routed / changes)


class _Moment(NamedTuple):
    at: float
    records: int
    router_cpu: float
    server_cpu: float


def _between(begun: _Moment | None, ended: _Moment, records_a_change: float) -> Routed:
    if begun is None or begun.records == ended.records:
        raise PeerFailure(f"the router made all of {ended.records} records at once; more changes are needed to measure it")
    seconds, records, of_router, of_server = (last - first for first, last in zip(begun, ended, strict=True))
    changes = records / records_a_change
    return Routed(changes / seconds, of_router / changes * 1e6, of_server / changes * 1e6)


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
