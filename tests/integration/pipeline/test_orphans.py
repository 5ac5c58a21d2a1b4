"""Children end when their parent does, whatever it dies of; and nobody dies because nobody reads what it says."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.pipeline.chat import all_routed, create_chat, write
from tests.integration.pipeline.test_up import Addresses
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.logged_process import ROOT, session_members
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pipeline import CommandProcess
from tests.support.ports import free_port
from tests.support.routed_tables import RoutedTables
from tests.support.server import ServerProcess

ENDLESS = "SELECT sum(a.x * b.x) FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(x)"
WORKER = "tailrace.sql.select.worker"


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def have_ended(processes: list[psutil.Process]) -> bool:
    """A zombie has ended: it only waits for whoever adopts orphans here."""
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@contextmanager
def a_query_that_takes_long(api: Api, parent: int) -> Iterator[None]:
    """A worker is in the middle of it."""

    def ask() -> None:
        with suppress(Exception):
            api.sql(ENDLESS)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        eventually(lambda: any(WORKER in words(process) for process in descendants(parent)), "a worker")
        workers = [process for process in descendants(parent) if WORKER in words(process)]
        eventually(lambda: any(worker.cpu_times().user > 1.5 for worker in workers), "a worker that works", PATIENCE_SECONDS)
        yield
    finally:
        asking.join(PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_worker_outlives_its_server(server: ServerProcess, api: Api, number: signal.Signals) -> None:
    with a_query_that_takes_long(api, server.pid):
        left = descendants(server.pid)
        server.signal(number)
        server.wait()
        eventually(lambda: have_ended(left), "the end of the workers", 5.0)


def without_reader(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}: {said}")


def is_running(api: Api) -> bool:
    return api.sql("SELECT state, last_error FROM system.pipelines") == [["running", None]]


def parts(of: list[psutil.Process]) -> set[str]:
    """Which of the kinds of processes are among them."""
    kinds = (
        "-m tailrace serve ",
        "-m tailrace pipeline ",
        "java",
        "pyspark.daemon",
        "tailrace.pipeline.daemon",
        "source_runner",
        WORKER,
    )
    return {kind for kind in kinds if any(kind in words(process) for process in of)}


SPARK = {"java", "pyspark.daemon", "tailrace.pipeline.daemon", "source_runner"}


@pytest.mark.long
def test_a_pipeline_whose_output_is_gone_goes_on_and_one_that_is_killed_leaves_nothing_behind(
    server: ServerProcess, tables: RoutedTables
) -> None:
    create_chat(tables)
    process = without_reader("pipeline", "--server", server.url, "--master", "local[1]")
    assert process.stdout is not None
    try:
        read_until(process, "is running")
        process.stdout.close()
        for first in (0, 1_000):
            write(tables, first)
            eventually(lambda: all_routed(tables), "all changes routed")
        tables.check()
        assert process.poll() is None
        assert is_running(tables.api)
        left = descendants(process.pid)
        assert parts(left) == SPARK
    finally:
        process.kill()
        process.wait()
    eventually(lambda: have_ended(left), "the end of Java and Spark's workers", 30.0)


@pytest.mark.long
def test_up_goes_on_when_its_output_is_gone_and_when_it_is_killed_a_new_one_goes_on_by_itself(tmp_path: Path) -> None:
    addresses = ("--http", f"127.0.0.1:{free_port()}", "--kafka", f"127.0.0.1:{free_port()}")
    flags = ("--data", str(tmp_path / "data"), "--master", "local[1]", *addresses)
    first = without_reader("up", *flags)
    assert first.stdout is not None
    try:
        read_until(first, "is ready at")
        # What the pipeline says of its start finds no reader, and it comes up nevertheless.
        first.stdout.close()
        tables = RoutedTables(Addresses(f"http://{addresses[1]}", addresses[3]))
        create_chat(tables)
        write(tables, 0)
        eventually(lambda: is_running(tables.api) and all_routed(tables), "all changes routed")
        with a_query_that_takes_long(tables.api, first.pid):
            left = descendants(first.pid)
            assert parts(left) == {"-m tailrace serve ", "-m tailrace pipeline ", WORKER, *SPARK}
            first.kill()
            first.wait()
            # At once, as whoever starts it again by itself does.
            with CommandProcess(tmp_path / "logs", "up", *flags) as second:
                second.await_line("server | Tailrace")
                write(tables, 1_000)
                second.await_line("pipeline | the pipeline is running")
                eventually(lambda: all_routed(tables), "all changes routed")
                assert have_ended(left)
                tables.check()
                assert second.terminate() == 0
    finally:
        first.kill()
        first.wait()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "| true", ">/dev/full"])
def test_a_server_without_output_serves(tmp_path: Path, closed: str) -> None:
    port = free_port()
    command = f"{sys.executable} -m tailrace serve --data {tmp_path}/data --http 127.0.0.1:{port} --kafka 127.0.0.1:0 {closed}"
    shell = subprocess.Popen(["bash", "-c", f"set -o pipefail; {command}"], cwd=ROOT, stdin=subprocess.DEVNULL)

    def answers() -> bool:
        with suppress(OSError):
            return Api(f"http://127.0.0.1:{port}").ask("/health") is not None
        return False

    eventually(answers, "a server that answers")
    (server,) = [one for one in [psutil.Process(shell.pid), *descendants(shell.pid)] if words(one).startswith(sys.executable)]
    server.terminate()
    assert shell.wait(PATIENCE_SECONDS) == 0


@pytest.mark.long
def test_a_pipeline_whose_java_is_stopped_with_it_leaves_no_trace(server: ServerProcess, tmp_path: Path) -> None:
    """As systemd stops a service: SIGTERM for all of its processes."""
    with CommandProcess(tmp_path / "logs", "pipeline", "--server", server.url, "--master", "local[1]") as pipeline:
        pipeline.await_line("the pipeline is running")
        for pid in session_members(pipeline.pid):
            os.kill(pid, signal.SIGTERM)
        pipeline.wait()
    assert "Traceback" not in pipeline.output, pipeline.output
    assert "py4j" not in pipeline.output
