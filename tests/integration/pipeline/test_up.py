"""`tailrace up` and `tailrace pipeline` as a person runs them: real processes, one log, a clean stop."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.pipeline.chat import all_routed, create_chat, write
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.logged_process import session_members
from tests.support.machine import old_java, without_any_java
from tests.support.pipeline import CommandProcess
from tests.support.routed_tables import RoutedTables

FREE = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
LINE = re.compile(r"^( *(server|pipeline) \| .*|)$")


def up(folder: Path, environment: dict[str, str | None] | None = None) -> CommandProcess:
    flags = ("--data", str(folder / "data"), "--master", "local[1]", *FREE)
    return CommandProcess(folder / "logs", "up", *flags, environment=environment)


class Addresses(NamedTuple):
    url: str
    kafka: str


def addresses_of(process: CommandProcess) -> Addresses:
    process.await_line("is ready at")
    found = re.search(r"is ready at (http://\S+), Kafka at (\S+),", process.output)
    assert found
    return Addresses(found[1], found[2])


def part(process: CommandProcess, word: str) -> int:
    """The one process of a part; each has a session of its own."""
    listed = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    children = [pid for pid in listed if _parent(pid) == process.pid and word in _command(pid)]
    (child,) = children
    return child


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@contextmanager
def writing(tables: RoutedTables) -> Iterator[None]:
    """Somebody writes, one change after the other, until the end of the block."""
    stop = threading.Event()

    def work() -> None:
        for first in range(0, 4_000, 100):
            if stop.is_set():
                return
            write(tables, first)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.long
def test_up_starts_a_killed_pipeline_again_which_loses_and_repeats_nothing_and_stops_clean(tmp_path: Path) -> None:
    with up(tmp_path) as process:
        tables = RoutedTables(addresses_of(process))
        create_chat(tables)
        process.await_line("pipeline | the pipeline is running")
        with writing(tables):
            eventually(lambda: tables.count("all") > 100, "some messages")
            killed = part(process, " pipeline ")
            for member in session_members(killed):
                # Some end by themselves as soon as their parent has gone.
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        process.await_line("pipeline | ended with exit code -9; starting it again in 1 s")
        write(tables, 200_000)
        eventually(lambda: all_routed(tables), "all changes routed")
        tables.check()
        server, pipeline = part(process, " serve "), part(process, " pipeline ")
        assert process.terminate() == 0
        assert session_members(server) == []
        assert session_members(pipeline) == []
    lines = [line for line in process.output.splitlines() if "WARN" not in line]
    assert [line for line in lines if not LINE.match(line)] == []
    assert lines[-1].endswith("| stopped") or "server" in lines[-1]


def test_up_without_java_serves_and_says_how_to_get_it(tmp_path: Path) -> None:
    with up(tmp_path, without_any_java(tmp_path / "hidden")) as process:
        api = Api(addresses_of(process).url)
        process.await_line("pipeline | not started: Java is not installed")
        assert "apt install openjdk" in process.output
        eventually(lambda: bool(api.ask("/api/pipelines")), "word of it at the server")
        ((state, error),) = api.sql("SELECT state, last_error FROM system.pipelines")
        assert state == "stopped"
        assert error.startswith("Java is not installed")
        api.sql("CREATE TABLE chat (id BIGINT PRIMARY KEY)")
        os.kill(part(process, " serve "), signal.SIGKILL)
        assert process.wait() == 1
        assert "server | ended with exit code -9; stopping the rest" in process.output


def test_up_without_the_kafka_connector_serves_and_says_how_to_get_it(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text('[pipeline]\nlatency = "realtime"\n')
    flags = ("--data", str(tmp_path / "data"), "--config", str(config), *FREE)
    with CommandProcess(tmp_path / "logs", "up", *flags) as process:
        api = Api(addresses_of(process).url)
        process.await_line("pipeline | not started: real time needs Spark's Kafka connector. Add --jars with a folder")
        eventually(lambda: bool(api.ask("/api/pipelines")), "word of it at the server")
        ((error,),) = api.sql("SELECT last_error FROM system.pipelines")
        assert error.startswith("real time needs Spark's Kafka connector")
        api.sql("CREATE TABLE chat (id BIGINT PRIMARY KEY)")
        assert process.terminate() == 0


def test_up_leaves_to_the_file_what_no_flag_says(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text(f'[server]\ndata = "{tmp_path}/elsewhere"\nhttp = "127.0.0.1:0"\nkafka = "127.0.0.1:0"\n')
    environment = without_any_java(tmp_path / "hidden")
    with CommandProcess(tmp_path / "logs", "up", "--config", str(config), environment=environment) as process:
        addresses_of(process)
        assert f"data in {tmp_path}/elsewhere," in process.output
        process.await_line("pipeline | not started: Java is not installed")
        assert process.terminate() == 0


def test_up_passes_on_the_exit_code_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with up(tmp_path) as process:
        code = process.wait()
    assert code not in (0, 2)
    assert f"server | ended with exit code {code}" in process.output
    assert "starting Spark" not in process.output


@pytest.mark.parametrize(
    ("home", "said"),
    [(None, "Java is not installed"), ("/nowhere", "JAVA_HOME=/nowhere does not run; Spark needs Java 17 or newer")],
)
def test_a_pipeline_without_java_says_how_to_get_it(tmp_path: Path, home: str | None, said: str) -> None:
    environment = {**without_any_java(tmp_path / "hidden"), "JAVA_HOME": home}
    with CommandProcess(tmp_path / "logs", "pipeline", environment=environment) as process:
        assert process.wait() == 1
    assert said in process.output
    assert "pip install 'tailrace[spark]'" in process.output
    assert len(process.output.splitlines()) == 1


def test_a_pipeline_on_an_old_java_says_how_to_get_a_new_one(tmp_path: Path) -> None:
    home = old_java(tmp_path / "jdk-11")
    environment = {**without_any_java(tmp_path / "hidden"), "PATH": f"{home}/bin:/usr/bin:/bin"}
    with CommandProcess(tmp_path / "logs", "pipeline", environment=environment) as process:
        assert process.wait() == 1
    assert f"{home}/bin/java is Java 11; Spark needs Java 17 or newer. Install" in process.output
    assert len(process.output.splitlines()) == 1


def test_a_pipeline_without_pyspark_says_how_to_get_it(tmp_path: Path) -> None:
    """A module of that name that can't be imported stands in its way."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyspark.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(hidden), *filter(None, sys.path)])
    with CommandProcess(tmp_path / "logs", "pipeline", environment={"PYTHONPATH": path}) as process:
        assert process.wait() == 1
    assert process.output == "tailrace: PySpark is not installed. Install it with: pip install 'tailrace[spark]'\n"


@pytest.mark.parametrize(
    ("address", "said"),
    [("nonsense://x", "is not an address such as http://127.0.0.1:8080"), ("127.0.0.1:9", "tailrace serve")],
)
def test_a_pipeline_without_a_server_says_so_before_it_starts_java(tmp_path: Path, address: str, said: str) -> None:
    with CommandProcess(tmp_path, "pipeline", "--server", address) as process:
        assert process.wait() == 1
    assert said in process.output
    assert len(process.output.splitlines()) == 1


def test_a_pipeline_finds_the_server_that_the_environment_names(tmp_path: Path) -> None:
    with CommandProcess(tmp_path, "pipeline", environment={"TAILRACE_SERVER": "nonsense://there"}) as process:
        assert process.wait() == 1
    assert "nonsense://there" in process.output


def test_the_help_of_a_pipeline_says_what_to_install(tmp_path: Path) -> None:
    with CommandProcess(tmp_path, "pipeline", "--help", environment={"COLUMNS": "200"}) as process:
        assert process.wait() == 0
    assert "pip install 'tailrace[spark]'" in process.output
