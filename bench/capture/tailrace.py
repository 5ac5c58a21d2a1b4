"""Tailrace as a capture: sources of a server, each captured by `tailrace capture` in a process of its own."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.capture.orders import PUBLICATION, Orders
from bench.http.server import HttpServer, serving
from bench.peers.postgres import url_of
from bench.peers.servers import PeerFailure, PeerProcess
from bench.workspace import Workspace

SOURCE = "bench"
_STATE_SECONDS = 60.0
_LOOK_SECONDS = 0.02


class _Row(msgspec.Struct):
    change: int


class _Event(msgspec.Struct):
    new: _Row


_DECODER = msgspec.json.Decoder(_Event)


class TailraceCapture:
    def __init__(self, server: HttpServer, folder: Path, orders: Orders) -> None:
        self.name = f"{server.name}, `tailrace capture`"
        self.kafka = server.kafka
        self.topic = _topic(SOURCE)
        self.server = server
        self._folder = folder
        self._orders = orders
        self._running: dict[str, PeerProcess] = {}

    @property
    def remarks(self) -> Sequence[str]:
        return []

    def prepare(self) -> None:
        self._create(SOURCE, "none")
        # The capture itself creates the slot.
        self.start()
        self._await_streaming(SOURCE)
        self.stop()

    def start(self) -> None:
        self._start(SOURCE)

    def stop(self) -> None:
        self._stop(SOURCE)

    def begin_snapshot(self, number: int) -> str:
        name = _snapshot(number)
        self._create(name, "initial")
        self._start(name)
        return _topic(name)

    def end_snapshot(self, number: int) -> None:
        name = _snapshot(number)
        slot = self._state(name)["slot"]
        self._stop(name)
        self.server.sql(f"DROP SOURCE {name} CASCADE")
        self._orders.drop_slot(slot)

    def check(self) -> None:
        for name in self._running:
            found = self._state(name)
            if found["state"] == "failed":
                raise PeerFailure(f"Tailrace failed: {found['error']} {found['advice']}")

    def read_change(self, value: bytes) -> int:
        return _DECODER.decode(value).new.change

    @property
    def pids(self) -> Mapping[str, int]:
        return {"server": self.server.pid, **{f"capture of {name}": process.pid for name, process in self._running.items()}}

    def close(self) -> None:
        for process in self._running.values():
            process.stop()

    def _create(self, name: str, snapshot: str) -> None:
        options = f"tables = 'public.orders', snapshot = '{snapshot}', publication = '{PUBLICATION}', captured_by = 'command'"
        self.server.sql(f"CREATE SOURCE {name} FROM POSTGRES '{url_of(self._orders.address)}' WITH ({options})")

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "tailrace", "capture", name, "--server", self.server.url]
        process = PeerProcess(command, self._folder / f"{name}.said")
        process.start(lambda: True)
        self._running[name] = process

    def _stop(self, name: str) -> None:
        """Kill the capture, which is as good as any other end: positions are in the log."""
        slot = self._state(name)["slot"]
        self._running.pop(name).stop()
        self._orders.await_free(slot)

    def _await_streaming(self, name: str) -> None:
        deadline = time.monotonic() + _STATE_SECONDS
        while (state := self._state(name)["state"]) != "streaming":
            self.check()
            if time.monotonic() > deadline:
                raise PeerFailure(f"the source {name} was {state} after {_STATE_SECONDS:.0f} s, and not streaming")
            time.sleep(_LOOK_SECONDS)

    def _state(self, name: str) -> dict[str, Any]:
        columns = ("state", "error", "advice", "slot")
        (row,) = self.server.sql(f"SELECT {', '.join(columns)} FROM system.sources WHERE name = ?", [name])
        return dict(zip(columns, row, strict=True))


@contextmanager
def tailrace_capture(workspace: Workspace, orders: Orders) -> Iterator[TailraceCapture]:
    """Run a server that syncs what it acknowledges, as it does by default."""
    with serving(workspace) as server, workspace.folder() as folder:
        capture = TailraceCapture(server, folder, orders)
        try:
            yield capture
        finally:
            capture.close()


def _topic(source: str) -> str:
    return f"_changes.{source}.public.orders"


def _snapshot(number: int) -> str:
    return f"snapshot_{number}"
