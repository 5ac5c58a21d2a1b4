"""`tailrace pipeline` as its users run it, and how fast it comes on.

A router is measured on changes that wait when it starts, or in rounds: then it is held up while the next changes are written,
so that they wait for it too.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.ground import settle_disk
from bench.http.server import HttpServer, cpu_seconds_of
from bench.peers.contract import PeerFailure
from bench.spark.changes import RoutedTable, check_routed, more_changes

_WARM_SHARE = 0.4
"""Java is slow until it has compiled what it does often; what is routed until then counts for nothing."""
_PATIENCE_SECONDS = 300.0
_STOP_SECONDS = 60.0


class Routed(NamedTuple):
    changes_per_second: float
    pipeline_cpu: float
    """Microseconds for each change: Java, Python's workers and the driver together."""
    server_cpu: float


class RouterProcess:
    def __init__(self, server: HttpServer, batch_rows: int, said: Path) -> None:
        command = [sys.executable, "-m", "tailrace", "pipeline", "--server", server.url, "--batch-rows", str(batch_rows)]
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
        """It does nothing at all meanwhile, not even look for changes. Nobody takes its lease, so it goes on with it."""
        processes = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        _send(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            _send(processes, signal.SIGCONT)

    def stop(self) -> None:
        """Gives its lease back, so that the next one need not wait."""
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
    """Round after round of one router and one table: so many changes are written, and then routed."""

    def __init__(self, server: HttpServer, router: RouterProcess, table: RoutedTable, batch_rows: int) -> None:
        """`table`: with changes that nobody has routed yet; the first round is theirs."""
        self._server = server
        self._router = router
        self._batch_rows = batch_rows
        self._done = 0
        self.table = table

    def first(self) -> Routed:
        """Java compiles most of what it will need in this one."""
        return self._routed()

    def next(self, changes: int) -> Routed:
        with self._router.held_up():
            self.table = more_changes(self._server, self.table, changes)
            settle_disk()
        return self._routed()

    def check(self) -> None:
        """That every change took its route once."""
        check_routed(self._server, self.table)

    def _routed(self) -> Routed:
        """From the end of the first batch on, so that whole batches are counted."""
        begin = self._done + self._batch_rows * self.table.routed // self.table.changes
        begun: _Moment | None = None
        for at, records in self._server.await_records(self.table.topics, self.table.routed, _PATIENCE_SECONDS):
            if begun is None and records >= begin:
                begun = _Moment(at, records, self._router.cpu_seconds, self._server.cpu_seconds)
        ended = _Moment(at, records, self._router.cpu_seconds, self._server.cpu_seconds)
        self._done = records
        return _between(begun, ended, self.table.routed / self.table.changes)


def measure_router(server: HttpServer, topics: Sequence[str], changes: int, routed: int, batch_rows: int, said: Path) -> Routed:
    """Start a router for changes that wait, of which so many records come out, and see how fast they come once it is warm."""
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
