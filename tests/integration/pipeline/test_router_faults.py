"""Whatever dies while changes are routed: afterwards the topics hold what the model says, nothing lost and nothing twice."""

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.model.errors import PipelineFencedError
from tailrace.model.killpoint import ROUTER_KILLPOINTS
from tailrace.pipeline import router as router_module
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.router import Router
from tests.integration.pipeline.chat import all_routed, create_chat, write
from tests.integration.pipeline.conftest import Running, RunOnce, router_of
from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.routed_tables import RoutedTables
from tests.support.server import ServerProcess


@pytest.fixture
def chat(tables: RoutedTables) -> RoutedTables:
    create_chat(tables)
    return tables


class FailsInTurn:
    """Every second attempt at a batch fails, each time at the next of the named points, until all had their turn."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._attempts = 0
        self.failed: list[str] = []

    def __call__(self, name: str) -> None:
        self._attempts += name == self._names[0]
        turn = len(self.failed)
        if turn < len(self._names) and self._attempts == 2 * (turn + 1) and name == self._names[turn]:
            self.failed.append(name)
            raise RuntimeError(f"the test lets the batch fail at {name}")


def test_a_batch_that_fails_at_any_point_is_done_again_once(
    chat: RoutedTables, routing: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same driver goes on: the query is started again by itself, with an empty checkpoint."""
    points = FailsInTurn(ROUTER_KILLPOINTS)
    monkeypatch.setattr(router_module, "killpoint", points)
    with routing(most_rows=20) as reports:
        write(chat, 0)
        write(chat, 100)
        eventually(lambda: bool(reports) and all_routed(chat), "all changes routed")
    assert points.failed == list(ROUTER_KILLPOINTS)
    assert sum("the test lets" in (report.last_error or "") for report in reports) == len(ROUTER_KILLPOINTS)
    chat.check()


def test_killed_workers_and_servers_are_pauses(chat: RoutedTables, server: ServerProcess, routing: Running) -> None:
    with routing(most_rows=20, retry_seconds=30.0) as reports:
        write(chat, 0)
        eventually(lambda: chat.count("keys") > 0, "the first messages")
        workers = python_workers(os.getpid())
        assert workers
        for first, worker in enumerate(workers, 1):
            write(chat, 100 * first)
            os.kill(worker, signal.SIGKILL)
        write(chat, 5_000)
        server.kill()
        server.flags = (*server.flags, "--http", server.url.removeprefix("http://"))
        server.start()
        write(chat, 6_000)
        eventually(lambda: all_routed(chat), "all changes routed")
    assert reports
    chat.check()


def python_workers(parent: int) -> list[int]:
    """Workers of Spark below a process: children of the daemon that Java has started."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}
    daemons = {int(pid) for pid, _, command in rows if "pyspark.daemon" in command}

    def is_below(pid: int) -> bool:
        while pid > 1:
            if pid == parent:
                return True
            pid = parents.get(pid, 1)
        return False

    return [pid for pid in daemons if parents[pid] in daemons and is_below(pid)]


@pytest.mark.long
def test_a_run_that_ends_by_itself_starts_a_worker_again_that_was_too_slow(
    chat: RoutedTables, route_once: RunOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_query = Router._run_query
    slow = iter(range(3))

    def run_slowly(router: Router, once: bool, *, is_backlog: bool = False) -> None:
        if next(slow, None) is not None:
            raise PipelineError("the query failed: Python worker failed to connect back.")
        run_query(router, once, is_backlog=is_backlog)

    monkeypatch.setattr(Router, "_run_query", run_slowly)
    write(chat, 0)
    assert len(route_once()) == 1
    chat.check()
    slow = iter(range(1_000))
    with pytest.raises(PipelineError, match="failed to connect back"):
        route_once()


@pytest.mark.long
def test_a_lost_or_old_checkpoint_does_not_matter(chat: RoutedTables, route_once: RunOnce, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    write(chat, 0)
    route_once(checkpoint=checkpoint)
    shutil.copytree(checkpoint, tmp_path / "old")
    write(chat, 100)
    route_once(checkpoint=checkpoint)
    shutil.rmtree(checkpoint)
    write(chat, 200)
    route_once(checkpoint=checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "old", checkpoint)
    write(chat, 300)
    route_once(checkpoint=checkpoint)
    chat.check()


def test_a_second_pipeline_is_rejected_and_one_that_takes_over_fences_the_first(
    chat: RoutedTables, server: ServerProcess, routing: Running, spark: SparkSession
) -> None:
    with pytest.raises(PipelineFencedError, match="taken over"), routing() as reports:
        write(chat, 0)
        eventually(lambda: all_routed(chat) and bool(reports), "all changes routed")
        said: list[str] = []
        with pytest.raises(PipelineFencedError, match="is run by process") as refused:
            router_of(spark, server, [], lease_wait_seconds=0.5).run(once=True, on_lease=lambda: said.append("is running"))
        assert "\n" not in str(refused.value)
        assert said == []
        write(chat, 100)
        router_of(spark, server, [], take_over=True).run(once=True)
        write(chat, 200)
        eventually(lambda: not a_heart_beats(), "the first to notice")
    router_of(spark, server, []).run(once=True)
    chat.check()


def a_heart_beats() -> bool:
    """Whether some router of this process still tells the server of itself: one that was fenced does not."""
    return any(thread.name == "tailrace-heartbeat" for thread in threading.enumerate())


def pipeline(tables: RoutedTables, folder: Path, *flags: str, killpoint: str | None = None) -> CommandProcess:
    flags = ("--server", tables.server.url, "--master", "local[2]", "--batch-rows", "20", *flags)
    return CommandProcess(folder, "pipeline", *flags, environment={"TAILRACE_KILLPOINT": killpoint})


def kill_at(point: str) -> Callable[[RoutedTables, Path], None]:
    def kill(tables: RoutedTables, folder: Path) -> None:
        with pipeline(tables, folder, killpoint=f"{point}:2") as process:
            assert process.wait() == 137

    return kill


def kill_at_random(tables: RoutedTables, folder: Path) -> None:
    with pipeline(tables, folder) as process:
        process.await_line("is running")
        seen = tables.count("all")
        enough = random.Random(seen).randint(1, 60)
        eventually(lambda: tables.count("all") > seen + enough, "some more messages")
        process.kill()


def kill_java(tables: RoutedTables, folder: Path) -> None:
    with pipeline(tables, folder) as process:
        process.await_line("is running")
        seen = tables.count("all")
        eventually(lambda: tables.count("all") > seen, "some messages")
        (java,) = process.members("java")
        os.kill(java, signal.SIGKILL)
        assert process.wait() == 1
        assert "Spark has ended" in process.output


def stop_politely(tables: RoutedTables, folder: Path) -> None:
    with pipeline(tables, folder) as process:
        process.await_line("is running")
        seen = tables.count("all")
        eventually(lambda: tables.count("all") > seen, "some messages")
        assert process.terminate() == 0
        assert "stopped" in process.output
        # Java notices that nobody is there any more, and ends by itself.
        eventually(lambda: process.members("java") == [], "the end of Java")


FAULTS: list[Callable[[RoutedTables, Path], None]] = [
    *(kill_at(point) for point in ROUTER_KILLPOINTS),
    kill_at_random,
    kill_java,
    stop_politely,
]


@pytest.mark.timeout(1_800)
def test_a_killed_pipeline_loses_nothing_and_repeats_nothing(chat: RoutedTables, tmp_path: Path, all_faults: bool) -> None:
    """Every pipeline here starts a Spark of its own. By default `tailrace up` is killed at random, in test_up."""
    if not all_faults:
        pytest.skip("needs a Spark of its own for every fault: --all-faults")
    for number, fault in enumerate(FAULTS):
        write(chat, 1_000 * number, 60)
        fault(chat, tmp_path / "logs")
    write(chat, 90_000)
    with pipeline(chat, tmp_path / "logs", "--once") as process:
        assert process.wait() == 0
    chat.check()
