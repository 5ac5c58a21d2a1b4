"""`tailrace pipeline` as its users run it, and how fast it comes on."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.http.server import HttpServer, cpu_seconds_of
from bench.peers.contract import PeerFailure

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


def measure_router(server: HttpServer, topics: Sequence[str], changes: int, routed: int, batch_rows: int, said: Path) -> Routed:
    """Start a router for changes that wait, of which so many records come out, and see how fast they come once it is warm."""
    begun: tuple[float, int, float, float] | None = None
    with routing(server, batch_rows, said) as router:
        for at, records in server.await_records(topics, routed, _PATIENCE_SECONDS):
            if begun is None and records >= _WARM_SHARE * routed:
                begun = at, records, router.cpu_seconds, server.cpu_seconds
        ended = at, records, router.cpu_seconds, server.cpu_seconds
    if begun is None or begun[1] == ended[1]:
        raise PeerFailure(f"the router did all of {changes} changes at once; more of them are needed to measure it")
    seconds, grown, of_router, of_server = (last - first for first, last in zip(begun, ended, strict=True))
    counted = grown * changes / routed
    return Routed(counted / seconds, of_router / counted * 1e6, of_server / counted * 1e6)
