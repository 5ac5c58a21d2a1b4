"""When jobs that read snapshots are run, when the server is asked for chunks, and what is said when Spark can't read them."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from tailrace.api.server import Health
from tailrace.api.snapshots import SnapshotWorkView
from tailrace.pipeline import snapshot_tasks
from tailrace.pipeline.session import SLOW_START
from tailrace.pipeline.snapshot_tasks import SnapshotsRead, SnapshotTasks, TaskResult, read_snapshots
from tests.support.eventually import eventually
from tests.unit.pipeline.recorded_requests import ADDRESS

CORES = 4
LONG = 1_000.0


class Server:
    """Counts how often it is asked."""

    def __init__(self, pending: int = 0) -> None:
        self.pending = pending
        self.asked = 0

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def get(self, path: str, response_type: type) -> object:
        if response_type is Health:
            return None
        assert path == "/api/snapshots"
        self.asked += 1
        return SnapshotWorkView(self.pending)


class Spark:
    """Stands in for the session and the context; `collect` is what a job does."""

    defaultParallelism = CORES
    pythonExec = "python3"

    def __init__(self, collect: Callable[[int], list[TaskResult]]) -> None:
        self._collect = collect
        self.sparkContext = self
        self.jobs: list[int] = []
        self.cancelled = threading.Event()
        self.active_tasks = 1

    def parallelize(self, numbers: range, slices: int) -> Any:
        assert len(numbers) == slices
        self.jobs.append(slices)
        return SimpleNamespace(map=lambda _: SimpleNamespace(collect=lambda: self._collect(slices)))

    def statusTracker(self) -> Any:
        return SimpleNamespace(
            getJobIdsForGroup=lambda _: [7],
            getJobInfo=lambda _: SimpleNamespace(stageIds=[8]),
            getStageInfo=lambda _: SimpleNamespace(numActiveTasks=self.active_tasks),
        )

    def setJobGroup(self, *_: object) -> None:
        return

    def cancelJobGroup(self, _: str) -> None:
        self.cancelled.set()


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that another test of this process has started and stopped would be asked for its context."""
    monkeypatch.setattr(SparkContext, "_gateway", None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(snapshot_tasks, "ServerConnection", lambda *_: found)
    monkeypatch.setattr(snapshot_tasks, "_ASK_SECONDS", 0.005)
    return found


@contextmanager
def running(spark: Any, read: list[SnapshotsRead] | None = None) -> Iterator[SnapshotTasks]:
    with SnapshotTasks(spark, ADDRESS, ([] if read is None else read).append) as tasks:
        yield tasks


def asked_again(server: Server, times: int = 3) -> None:
    before = server.asked
    eventually(lambda: server.asked >= before + times, "the server is asked")


def test_without_chunks_the_server_is_asked_and_no_job_runs(server: Server) -> None:
    spark = Spark(lambda _: [])
    with running(spark):
        asked_again(server)
    assert spark.jobs == []


@pytest.mark.parametrize(("pending", "tasks"), [(1, 1), (3, 3), (100, CORES)])
def test_a_job_has_a_task_for_each_chunk_and_no_more_than_there_are_cores(server: Server, pending: int, tasks: int) -> None:
    def read_all(slices: int) -> list[TaskResult]:
        server.pending = 0
        return [TaskResult(10, None)] * slices

    server.pending = pending
    spark = Spark(read_all)
    read: list[SnapshotsRead] = []
    with running(spark, read) as found:
        eventually(lambda: len(read) > 0, "a job")
        asked_again(server)
    assert spark.jobs == [tasks]
    assert read[0][:2] == (10 * tasks, tasks)
    assert found.notice is None


def test_the_next_job_follows_while_chunks_wait(server: Server) -> None:
    server.pending = 100
    spark = Spark(lambda slices: [TaskResult(1, None)] * slices)
    with running(spark):
        eventually(lambda: len(spark.jobs) > 3, "jobs")


def test_the_server_is_asked_while_tasks_read_and_a_job_ends_with_the_router(server: Server) -> None:
    def read_until_cancelled(_: int) -> list[TaskResult]:
        spark.cancelled.wait(LONG)
        raise RuntimeError("cancelled")

    server.pending = 1
    spark = Spark(read_until_cancelled)
    with running(spark):
        eventually(lambda: len(spark.jobs) == 1, "a job")
        asked_again(server)
        assert not spark.cancelled.is_set()
    assert spark.cancelled.is_set()
    assert spark.jobs == [1]


def test_a_job_that_gets_no_core_is_given_up_and_the_server_not_asked_meanwhile(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_tasks, "_IDLE_SECONDS", 0.2)
    server.pending = 1
    spark = Spark(lambda _: [TaskResult(0, None)] if spark.cancelled.wait(LONG) else [])
    spark.active_tasks = 0
    with running(spark) as tasks:
        eventually(spark.cancelled.is_set, "the job is given up")
        eventually(lambda: tasks.notice is not None, "a notice")
        assert server.asked == 1
    assert tasks.notice is not None
    assert "Spark had no core free for them for 0.2 s" in tasks.notice


@pytest.mark.parametrize("is_raised", [False, True])
def test_a_failure_is_one_line_until_it_is_over_and_spark_is_tried_again_later(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_raised: bool
) -> None:
    def fail_twice(slices: int) -> list[TaskResult]:
        if len(spark.jobs) > 2:
            server.pending = 0
            return [TaskResult(1, None)] * slices
        if is_raised:
            raise RuntimeError("no such\n\tat java\nCaused by: it broke")
        return [TaskResult(1, "it broke"), *[TaskResult(1, None)] * (slices - 1)]

    monkeypatch.setattr(snapshot_tasks, "_PAUSE_SECONDS", 1.0)
    server.pending = CORES
    spark = Spark(fail_twice)
    with running(spark) as tasks, caplog.at_level(logging.WARNING):
        eventually(lambda: tasks.notice is not None, "a notice")
        assert tasks.notice == "Spark's tasks can't read snapshots, so captures read them alone: it broke"
        assert server.asked <= 3, "the server is asked in the pause"
        eventually(lambda: tasks.notice is None, "the notice is withdrawn")
    assert len(spark.jobs) == 3
    assert [record.message for record in caplog.records if record.name.startswith("tailrace")] == [
        "Spark's tasks can't read snapshots, so captures read them alone: it broke"
    ]


def test_a_worker_that_is_slow_to_start_is_tried_again_at_once(server: Server) -> None:
    def fail_once(slices: int) -> list[TaskResult]:
        if len(spark.jobs) == 1:
            raise RuntimeError(f"org.apache.spark.SparkException: {SLOW_START}.")
        server.pending = 0
        return [TaskResult(1, None)] * slices

    server.pending = 1
    spark = Spark(fail_once)
    read: list[SnapshotsRead] = []
    with running(spark, read) as tasks:
        eventually(lambda: len(read) == 1, "the second job")
        assert tasks.notice is None


@pytest.mark.usefixtures("server")
def test_a_worker_without_psycopg_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tailrace.capture.snapshot_chunks", None)
    rows, error = read_snapshots(ADDRESS)
    assert rows == 0
    assert error is not None
    assert "has no psycopg with its libpq" in error
    assert "pip install 'tailrace[postgres]'" in error
    assert error.endswith("make the archive again with: tailrace pipeline package")
