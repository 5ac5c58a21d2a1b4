"""A pipeline that can't run says why in one line, ends with 1, and leaves the reason with the server."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api import Api
from tests.support.machine import without_any_java
from tests.support.pipeline import CommandProcess
from tests.support.server import ServerProcess


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", "--durability", "relaxed") as server:
        yield server


def fails(server: ServerProcess, folder: Path, master: str, *more: str, **environment: str | None) -> str:
    """Its last line, which the server knows as well."""
    flags = ("--server", server.url, "--master", master, *more)
    with CommandProcess(folder, "pipeline", *flags, environment=environment) as process:
        assert process.wait() == 1
    said = [line for line in process.output.splitlines() if not line.startswith(("starting Spark", "the pipeline is running"))]
    assert len(said) == 1, process.output
    line = said[0].removeprefix("tailrace: ")
    assert Api(server.url).sql("SELECT state, last_error FROM system.pipelines") == [["stopped", line]]
    return line


def nobody() -> str:
    """The address of a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_invalid_master_is_rejected_before_java_is_started(server: ServerProcess, tmp_path: Path) -> None:
    assert "'nonsense' is not a Spark master. Use local[*]" in fails(server, tmp_path, "nonsense")
    assert "'local[x]' is not a Spark master" in fails(server, tmp_path, "local[x]")
    assert "'10.0.0.7' is not HOST:PORT" in fails(server, tmp_path, "spark://10.0.0.7")


def test_yarn_without_its_settings_says_which(server: ServerProcess, tmp_path: Path) -> None:
    unset = {"HADOOP_CONF_DIR": None, "YARN_CONF_DIR": None}
    assert "needs HADOOP_CONF_DIR or YARN_CONF_DIR" in fails(server, tmp_path, "yarn", **unset)


def test_a_dead_master_is_rejected_before_java_is_started(server: ServerProcess, tmp_path: Path) -> None:
    dead = f"spark://{nobody()},{nobody()}"
    assert fails(server, tmp_path, dead).startswith(f"no Spark master answers at {dead}: Connection refused. Start it")


def test_a_dead_kubernetes_is_rejected_before_java_is_started(server: ServerProcess, tmp_path: Path) -> None:
    dead = f"k8s://https://{nobody()}"
    assert fails(server, tmp_path, dead).startswith(f"no Kubernetes API server answers at {dead}: Connection refused. Start it")
    assert "'https://h:x' is not HOST:PORT" in fails(server, tmp_path, "k8s://https://h:x")


def test_without_java_it_says_how_to_install_it(server: ServerProcess, tmp_path: Path) -> None:
    line = fails(server, tmp_path / "logs", "local[1]", **without_any_java(tmp_path / "hidden"))
    assert line.startswith("Java is not installed, and Spark needs it. Install Java 17 or newer")


def test_spark_connect_is_refused_with_what_to_use_instead(server: ServerProcess, tmp_path: Path) -> None:
    line = fails(server, tmp_path, "sc://127.0.0.1:15002")
    assert line.startswith(
        "the pipeline can't run through Spark Connect (--master sc://127.0.0.1:15002): each batch calls back"
    )
    assert "pass the master of the same cluster with --master, or use spark-submit" in line
    assert "(SPARK_REMOTE=sc://h)" in fails(server, tmp_path, "local[1]", SPARK_REMOTE="sc://h")


def test_an_archive_that_is_none_is_rejected_before_java_is_started(server: ServerProcess, tmp_path: Path) -> None:
    missing = tmp_path / "missing.tar.gz"
    line = fails(server, tmp_path / "logs", "local[1]", "--archives", str(missing))
    assert line == f"can't read the archive {missing}: No such file or directory. Make one with: tailrace pipeline package"


@pytest.mark.long
def test_what_only_spark_finds_out_is_one_line_too(server: ServerProcess, tmp_path: Path) -> None:
    """A cluster of no workers is something that Spark itself refuses, with a trace."""
    line = fails(server, tmp_path, "local-cluster[1]")
    assert line.startswith("Spark did not start at local-cluster[1]: Could not parse Master URL: 'local-cluster[1]'")


@pytest.mark.long
def test_workers_without_the_package_end_the_pipeline(server: ServerProcess, tmp_path: Path) -> None:
    api = Api(server.url)
    for statement in (
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TOPIC o",
        "ALTER TOPIC o ADD SOURCE t ON INSERT",
        "INSERT INTO t VALUES (1)",
    ):
        api.sql(statement)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=100)
    python = f"{tmp_path}/bare/bin/python"
    line = fails(server, tmp_path / "logs", "local[1]", PYSPARK_PYTHON=python)
    assert line.startswith(f"{python}, the Python of Spark's workers, has no module 'tailrace")
    assert "Make an archive with: tailrace pipeline package" in line
