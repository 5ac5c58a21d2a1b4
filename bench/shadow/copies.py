"""What copies a topic from a Tailrace server to another cluster, exactly once, as benchmarks see it."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from bench.http.server import HttpServer
from bench.peers.connect import ConnectPeer
from bench.peers.mirror_maker import NAME, PROMPT, TUNED, connector_settings, mirror_maker_worker
from bench.peers.servers import Peer, PeerFailure, PeerProcess
from bench.workspace import Workspace

_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_MOST_TASKS = 2
"""As many tasks as the machine has cores."""


class TopicCopier(Protocol):
    """Copies one topic at a time."""

    @property
    def name(self) -> str:
        """The name on the page, with versions."""

    @property
    def remarks(self) -> Sequence[str]:
        """What the page must say of it, such as settings."""

    def start(self, topic: str, partitions: int, *, prompt: bool = False) -> str:
        """Begin to copy a topic, and return its name in the target. `prompt` favours the delay of single records."""

    def await_running(self) -> None:
        """Wait until it copies what comes."""

    def stop(self) -> None:
        """Stop copying it."""

    def check(self) -> None:
        """Raise `PeerFailure` if copying has failed."""

    @property
    def pid(self) -> int:
        """The process that copies."""


MakeCopier = Callable[[Workspace, HttpServer, Peer], AbstractContextManager[TopicCopier]]
"""Makes what copies from a server to a target, both of which run."""


class TailraceShadow:
    def __init__(self, server: HttpServer, target: Peer, folder: Path) -> None:
        self.name = f"{server.name}, `tailrace shadow run`"
        self.remarks: Sequence[str] = []
        self._server = server
        self._target = target
        self._folder = folder
        self._numbers = count()
        self._shadow = ""
        self._process: PeerProcess | None = None

    def start(self, topic: str, partitions: int, *, prompt: bool = False) -> str:
        name = self._shadow = f"copy_{next(self._numbers)}"
        self._server.sql(
            f"CREATE SHADOW {name} TO KAFKA '{self._target.address}' WITH (topics = '{topic}', copied_by = 'command')"
        )
        command = [sys.executable, "-m", "tailrace", "shadow", "run", name, "--server", self._server.url]
        self._process = PeerProcess(command, self._folder / f"{name}.said")
        self._process.start(lambda: True)
        return topic

    def await_running(self) -> None:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while self._server.sql("SELECT state FROM system.shadows WHERE name = ?", [self._shadow]) != [["live"]]:
            self.check()
            if time.monotonic() > deadline:
                raise PeerFailure(f"the shadow was not live after {_ANSWER_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
            self._server.sql(f"DROP SHADOW {self._shadow}")

    def check(self) -> None:
        ((state, error),) = self._server.sql("SELECT state, error FROM system.shadows WHERE name = ?", [self._shadow])
        if state == "failed":
            raise PeerFailure(f"the shadow is {state}: {error}")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerFailure("the shadow is not copied")
        return self._process.pid


class MirrorMaker:
    def __init__(self, worker: ConnectPeer, server: HttpServer, target: Peer) -> None:
        self.name = NAME
        settings = ", ".join(f"`{name}={value}`" for name, value in TUNED.items())
        self.remarks: Sequence[str] = [
            f"MirrorMaker 2 has {settings}; for the delay `{'`, `'.join(f'{name}={value}' for name, value in PROMPT.items())}`."
        ]
        self._worker = worker
        self._server = server
        self._target = target
        self._numbers = count()
        self._connector: str | None = None

    def start(self, topic: str, partitions: int, *, prompt: bool = False) -> str:
        self._connector = alias = f"mirror{next(self._numbers)}"
        settings = connector_settings(
            topic,
            self._server.kafka,
            self._target.address,
            alias,
            min(partitions, _MOST_TASKS),
            {**TUNED, **PROMPT} if prompt else TUNED,
        )
        self._worker.create(alias, settings)
        return f"{alias}.{topic}"

    def await_running(self) -> None:
        if self._connector is not None:
            self._worker.await_task(self._connector)

    def stop(self) -> None:
        if self._connector is not None:
            self._worker.remove(self._connector)
            self._connector = None

    def check(self) -> None:
        self._worker.check()

    @property
    def pid(self) -> int:
        return self._worker.pid


@contextmanager
def tailrace_shadow(workspace: Workspace, server: HttpServer, target: Peer) -> Iterator[TopicCopier]:
    with workspace.folder() as folder:
        shadow = TailraceShadow(server, target, folder)
        try:
            yield shadow
        finally:
            shadow.stop()


@contextmanager
def mirror_maker(jars: Path, workspace: Workspace, server: HttpServer, target: Peer) -> Iterator[TopicCopier]:
    with workspace.folder() as folder:
        worker = mirror_maker_worker(jars, folder, target.address)
        try:
            worker.start()
            yield MirrorMaker(worker, server, target)
        finally:
            worker.stop()
