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
from tests.integration.pipeline.test_up import addresses_of
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pipeline import ROOT, CommandProcess
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
        (worker,) = [process for process in descendants(parent) if WORKER in words(process)]
        eventually(lambda: worker.cpu_times().user > 1.5, "a worker that works", PATIENCE_SECONDS)
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


def test_up_that_is_killed_leaves_nothing_behind_and_a_new_one_goes_on_by_itself(tmp_path: Path) -> None:
    addresses = ("--http", f"127.0.0.1:{free_port()}", "--kafka", f"127.0.0.1:{free_port()}")
    flags = ("--data", str(tmp_path / "data"), "--master", "local[1]", *addresses)
    with CommandProcess(tmp_path / "logs", "up", *flags) as first:
        tables = RoutedTables(addresses_of(first))
        create_chat(tables)
        first.await_line("pipeline | the pipeline is running")
        write(tables, 0)
        eventually(lambda: all_routed(tables), "all changes routed")
        with a_query_that_takes_long(tables.api, first.pid):
            left = descendants(first.pid)
            assert {"serve", "pipeline", "java", "daemon", WORKER} <= {
                word for word in ("serve", "pipeline", "java", "daemon", WORKER) if any(word in words(one) for one in left)
            }
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            # At once, as whoever starts it again by itself does.
            with CommandProcess(tmp_path / "logs", "up", *flags) as second:
                second.await_line("server | Tailrace")
                second.await_line("pipeline | the pipeline is running")
                write(tables, 1_000)
                eventually(lambda: all_routed(tables), "all changes routed")
                eventually(lambda: have_ended(left), "the end of what the killed one has started", 20.0)
                tables.check()
                assert second.terminate() == 0


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


def test_a_pipeline_whose_output_is_gone_goes_on(server: ServerProcess, tables: RoutedTables) -> None:
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
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    ((state, error),) = tables.api.sql("SELECT state, last_error FROM system.pipelines")
    assert (state, error) == ("stopped", None)


def test_up_whose_output_is_gone_goes_on(tmp_path: Path) -> None:
    free = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    process = without_reader("up", "--data", str(tmp_path / "data"), "--master", "local[1]", *free)
    assert process.stdout is not None
    try:
        ready = read_until(process, "is ready at")
        process.stdout.close()
        url = ready.partition("is ready at ")[2].partition(",")[0]
        api = Api(url)
        # What the pipeline says of its start finds no reader either, and it comes up nevertheless.
        eventually(lambda: [row[0] for row in api.sql("SELECT state FROM system.pipelines")] == ["running"], "a pipeline")
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


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
