"""A Tailrace server, a Kafka beside it, a faulty network between them, and shadows that copy from one to the other.

The Kafka may be another Tailrace server, which speaks the same protocol: so these tests need nothing but PyPI. `tests/compat`
runs them with an Apache Kafka.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.error import URLError

import psutil

from tests.support.api import Api
from tests.support.copied_topics import ClusterView
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess

STATE_SECONDS = 60.0


class OtherKafka(Protocol):
    """The Kafka of a shadow. It can be killed and started again."""

    address: str
    """Where clients reach it: through the network, if there is one."""

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> object: ...


class TailraceAsKafka:
    """Another Tailrace server."""

    def __init__(self, folder: Path, advertised: str, port: int) -> None:
        self.address = advertised
        self._server = ServerProcess(folder, "--kafka", f"127.0.0.1:{port}", "--advertise", advertised)

    def start(self) -> object:
        return self._server.start()

    def kill(self) -> None:
        self._server.kill()


class ShadowRow(NamedTuple):
    """What `system.shadows` shows."""

    phase: str
    state: str
    error: str | None
    advice: str | None
    notes: str | None
    lag: int
    records: int
    groups: int


_numbers = itertools.count(1)


class ShadowPair:
    """`server` is the Tailrace server that has the shadows, `kafka` the other cluster."""

    def __init__(self, server: ServerProcess, kafka: OtherKafka, network: FaultyProxy) -> None:
        self.server = server
        self.kafka = kafka
        self.network = network
        self.here = ClusterView(server.kafka)
        self.there = ClusterView(kafka.address)

    @property
    def api(self) -> Api:
        return Api(self.server.url)

    def shadow(self, direction: str = "to", **options: str) -> "TestedShadow":
        """Return a shadow of topics below a name of its own. It is to be created."""
        return TestedShadow(self, f"s{next(_numbers)}", direction, options)


class TestedShadow:
    """One shadow, with topics whose names begin with its own."""

    __test__ = False

    def __init__(self, pair: ShadowPair, name: str, direction: str, options: dict[str, str]) -> None:
        self.pair = pair
        self.name = name
        self.direction = direction
        self._options = {"topics": f"{name}.>", "groups": f"{name}-*", **options}
        self.origin, self.target = (pair.here, pair.there) if direction == "to" else (pair.there, pair.here)

    def topic(self, name: str = "t") -> str:
        return f"{self.name}.{name}"

    def group(self, name: str = "g") -> str:
        return f"{self.name}-{name}"

    def create(self, *, awaits: str | None = "live", **options: str) -> "TestedShadow":
        given = ", ".join(f"{name} = '{value}'" for name, value in {**self._options, **options}.items())
        self.sql(f"CREATE SHADOW {self.name} {self.direction.upper()} KAFKA '{self.pair.kafka.address}' WITH ({given})")
        if awaits is not None:
            self.await_state(awaits)
        return self

    def drop(self) -> None:
        self.sql(f"DROP SHADOW IF EXISTS {self.name} FORCE")

    def sql(self, text: str) -> list[list[Any]]:
        return self.pair.api.sql(text)

    def alter(self, what: str) -> None:
        self.sql(f"ALTER SHADOW {self.name} {what}")

    def row(self) -> ShadowRow:
        columns = ", ".join(ShadowRow._fields)
        ((*row,),) = self.sql(f"SELECT {columns} FROM system.shadows WHERE name = '{self.name}'")
        return ShadowRow(*row)

    def await_state(self, *states: str, error: str = "", seconds: float = STATE_SECONDS) -> ShadowRow:
        """Wait for one of the states, with an error that has this text, and return the row that shows it."""
        found: list[ShadowRow | None] = [None]

        def is_there() -> bool:
            with suppress(URLError, ConnectionError):
                found[0] = self.row()
            row = found[0]
            return row is not None and row.state in states and error in (row.error or "")

        try:
            eventually(is_there, f"the state {' or '.join(states)}", seconds)
        except AssertionError as failure:
            raise AssertionError(f"{failure}: it is {found[0]}; the server said {self.pair.server.stderr[-3000:]}") from None
        assert found[0] is not None
        return found[0]

    def await_note(self, text: str) -> None:
        eventually(lambda: text in str(self.row().notes), f"a note with {text!r}", STATE_SECONDS)

    def await_equal(self, topic: str = "t", seconds: float = STATE_SECONDS) -> None:
        """Wait until both sides have as many records, and compare them."""
        name = self.topic(topic)
        wanted = self.origin.contents(name)

        def is_equal() -> bool:
            topics = self.target.topics()
            return topics.get(name, 0) >= len(wanted) and sum(map(len, self.target.contents(name))) >= sum(map(len, wanted))

        eventually(is_equal, f"{sum(map(len, wanted))} records of {name}", seconds)
        found = self.target.contents(name)
        for partition, (theirs, ours) in enumerate(zip(found, wanted, strict=True)):
            assert len(theirs) == len(ours), f"partition {partition} has {len(theirs)} of {len(ours)} records"
            for at, (other, one) in enumerate(zip(theirs, ours, strict=True)):
                assert other == one, f"record {at} of partition {partition} differs"

    def copied_topics(self) -> set[str]:
        """Return the topics that the process reports."""
        return {row[0] for row in self.sql(f"SELECT topic FROM system.shadow_partitions WHERE shadow = '{self.name}'")}

    def processes(self) -> list[psutil.Process]:
        """Return the processes that copy it, which the server has started."""
        return copiers_of(self.pair.server.pid, self.name)

    def kill_processes(self) -> int:
        """SIGKILL. Return how many there were."""
        return kill_copiers(self.pair.server.pid, self.name)

    def run(self) -> "CopyProcess":
        """Start `tailrace shadow run`, for a shadow with copied_by = 'command'."""
        return CopyProcess(self)

    def command(self, action: str, *arguments: str, code: int = 0) -> str:
        """Run `tailrace shadow ACTION`, and return all that it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", "shadow", action, self.name, "--server", self.pair.server.url, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == code, f"exit code {done.returncode}: {done.stdout} {done.stderr}"
        return done.stdout + done.stderr

    @property
    def positions(self) -> str:
        """The group in which the target keeps the positions."""
        (found,) = [group for group in self.target.groups() if group.startswith(f"tailrace-shadow-{self.name}-")]
        return found


class CopyProcess:
    """`with shadow.run() as process:`"""

    def __init__(self, shadow: TestedShadow) -> None:
        command = [sys.executable, "-m", "tailrace", "shadow", "run", shadow.name, "--server", shadow.pair.server.url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self) -> "CopyProcess":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)
        self._process.kill()
        self._process.communicate()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Return the exit code and what it printed."""
        said, _ = self._process.communicate(timeout=PATIENCE_SECONDS)
        return self._process.returncode, said


@contextmanager
def shadow_pair(folder: Path, *flags: str) -> Iterator[ShadowPair]:
    """Run two Tailrace servers, each on the same ports after each start."""
    port = free_port()
    with FaultyProxy(f"http://127.0.0.1:{port}") as network:
        other = TailraceAsKafka(folder / "other", network.url.removeprefix("http://"), port)
        other.start()
        try:
            with beside(folder, other, network, *flags) as pair:
                yield pair
        finally:
            other.kill()


@contextmanager
def beside(folder: Path, kafka: OtherKafka, network: FaultyProxy, *flags: str) -> Iterator[ShadowPair]:
    """Run a Tailrace server beside a Kafka that runs."""
    given = ("--http", f"127.0.0.1:{free_port()}", "--kafka", f"127.0.0.1:{free_port()}", *flags)
    with ServerProcess(folder / "here", *given) as server:
        yield ShadowPair(server, kafka, network)


def copiers_of(server_pid: int, name: str | None = None) -> list[psutil.Process]:
    """Return the processes that copy shadows, or the one of this name, which the server has started."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(server_pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                command = child.cmdline()
                if command[3:5] == ["shadow", "run"] and name in (None, command[5]):
                    found.append(child)
    return found


def kill_copiers(server_pid: int, name: str | None = None) -> int:
    """SIGKILL. Return how many there were."""
    found = copiers_of(server_pid, name)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return len(found)
