"""The pipeline on a standalone cluster: routes and snapshots, a worker that is killed, spark-submit, and workers that can't
run our tasks.

The workers' Python has nothing installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.pipeline.worker_archive import make_archive
from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.routed_tables import RoutedTables
from tests.support.routing_model import Change, Route
from tests.support.server import ServerProcess
from tests.support.spark_cluster import LOCAL, SPARK_HOME, StandaloneCluster

TABLE = "chat.messages"
TOPICS = ("all", "odd", "odd.dead_letters")
MEMORY = "spark.executor.memory=512m"
ROUTED_SECONDS = 200.0
_OUR_LINES = ("starting Spark", "the pipeline", "batch ", "snapshots: ", "stopped")
WRITTEN = 5_000
SMALL_BATCHES = ("--batch-rows", "200")
PROGRAM = "from tailrace.cli.main import main\n\nmain()\n"


@pytest.fixture(scope="module", autouse=True)
def with_others(all_clients: bool) -> None:
    if not all_clients:
        pytest.skip("starts many Sparks; `make smoke` plays it")


@pytest.fixture(scope="module")
def archive(with_others: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("archive") / "tailrace-env.tar.gz").path


@pytest.fixture(scope="module")
def cluster(with_others: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("spark") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[RoutedTables]:
    with ServerProcess(tmp_path / "data", "--durability", "relaxed") as server:
        tables = RoutedTables(server)
        create_routed_table(tables)
        yield tables


def create_routed_table(tables: RoutedTables) -> None:
    """A table with a route to three partitions and one whose condition divides by zero."""
    tables.create(TABLE, user_id="INT", body="TEXT")
    tables.api.create_topic("all", 3)
    tables.api.create_topic("odd")
    tables.route(Route("all", TABLE, ("insert", "update", "delete"), "diff", partition_by=("user_id",)))
    tables.route(Route("odd", TABLE, ("insert", "update"), "full", _is_odd), "10 / user_id % 2 = 1")


def _is_odd(change: Change) -> bool:
    return 10 // change.row["user_id"] % 2 == 1


def write(tables: RoutedTables, first: int, count: int) -> None:
    for start in range(first, first + count, 500):
        ids = range(start, min(start + 500, first + count))
        tables.insert(TABLE, *({"id": id, "user_id": id % 4, "body": f"b{id}"} for id in ids))
    for id in range(first, first + 20, 2):
        tables.update(TABLE, id, body=None)
        tables.update(TABLE, id, user_id=3)
    for id in range(first, first + 20, 5):
        tables.delete(TABLE, id)


def flags(tables: RoutedTables, master: str, archive: Path | None = None, *more: str) -> list[str]:
    archives = [] if archive is None else ["--archives", str(archive)]
    return ["--server", tables.server.url, "--master", master, *archives, "--conf", MEMORY, *more]


def lag(tables: RoutedTables) -> int | None:
    """How many changes wait; `None` before the first pipeline."""
    statuses = tables.api.ask("/api/pipelines")
    return statuses[0]["lag"] if statuses else None


def until_routed(tables: RoutedTables, pipeline: CommandProcess) -> None:
    def is_routed() -> bool:
        assert not pipeline.has_ended, pipeline.output
        return lag(tables) == 0

    eventually(is_routed, "all changes routed", ROUTED_SECONDS)


def other_lines(pipeline: CommandProcess) -> list[str]:
    """What it printed that is not of an undisturbed run."""
    return [line for line in pipeline.output.splitlines() if not line.startswith(_OUR_LINES)]


def fails(tables: RoutedTables, folder: Path, given: list[str], **environment: str) -> str:
    """Its one line, which the server knows as well."""
    with CommandProcess(folder, "pipeline", *given, environment={**LOCAL, **environment}) as pipeline:
        assert pipeline.wait() == 1, pipeline.output
    (said,) = other_lines(pipeline)
    line = said.removeprefix("tailrace: ")
    assert tables.api.sql("SELECT state, last_error FROM system.pipelines") == [["stopped", line]]
    return line


@pytest.mark.timeout(600)
def test_changes_are_routed_and_snapshots_read_exactly_once(
    tables: RoutedTables, cluster: StandaloneCluster, archive: Path, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORDS[APP])
    write(tables, 0, 1_000)
    with (
        PostgresServer(tmp_path / "postgres") as postgres,
        postgres.connect() as connection,
        CommandProcess(tmp_path / "logs", "pipeline", *flags(tables, cluster.url, archive), environment=LOCAL) as pipeline,
    ):
        pipeline.await_line("the pipeline is running")
        # A worker that has to unpack the archive first may take so long that the capture reads the rows itself.
        until_routed(tables, pipeline)
        connection.execute("CREATE TABLE items AS SELECT id, md5(id::text) AS body FROM generate_series(1, 5000) AS id")
        url = f"postgresql://{APP}@127.0.0.1:{postgres.port}/{DATABASE}"
        tables.api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}' WITH (password_file = '{password}')")
        pipeline.await_line("snapshots: 5,000 rows read by 1 task")
        eventually(lambda: tables.api.sql("SELECT snapshot_state FROM system.sources") == [[None]], "the end of the snapshot")
        assert other_lines(pipeline) == []
        assert pipeline.terminate() == 0
    tables.check(TOPICS)
    assert tables.api.sql("SELECT count(*) FROM shop.public.items") == [[5_000]]


@pytest.mark.timeout(600)
def test_a_worker_that_is_killed_is_replaced_and_every_change_is_routed_once(
    tables: RoutedTables, cluster: StandaloneCluster, archive: Path, tmp_path: Path
) -> None:
    given = flags(tables, cluster.url, archive, *SMALL_BATCHES)
    with CommandProcess(tmp_path / "logs", "pipeline", *given, environment=LOCAL) as pipeline:
        pipeline.await_line("the pipeline is running")
        for first in range(0, 3 * 10_000, 10_000):
            write(tables, first, WRITTEN)
            total = lag(tables) or 0
            eventually(lambda: (lag(tables) or 0) < total, "the next batch", ROUTED_SECONDS)  # noqa: B023
            cluster.kill_worker()
            assert (lag(tables) or 0) > 0, "all was routed before the worker was killed"
            cluster.start_worker()
            until_routed(tables, pipeline)
            tables.check(TOPICS)
        assert pipeline.terminate() == 0
    assert other_lines(pipeline) == [], pipeline.output


@pytest.mark.timeout(600)
def test_spark_submit_runs_the_router(tables: RoutedTables, cluster: StandaloneCluster, archive: Path, tmp_path: Path) -> None:
    write(tables, 0, WRITTEN)
    program = tmp_path / "router.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, **LOCAL, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("PYSPARK_PYTHON", None)
    submit = [f"{SPARK_HOME}/bin/spark-submit", "--master", cluster.url, "--archives", f"{archive}#tailrace", "--conf", MEMORY]
    router = [str(program), "pipeline", "--server", tables.server.url, "--once"]
    done = subprocess.run([*submit, *router], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"starting Spark at {cluster.url}" in done.stdout
    tables.check(TOPICS)
    refused = subprocess.run(
        [*submit, *router, "--master", "local[1]"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    assert refused.returncode == 1
    assert f"tailrace: spark-submit has started this at {cluster.url}, so --master local[1] is too late" in refused.stdout


def test_workers_without_the_package_are_told_of_the_archive(
    tables: RoutedTables, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    write(tables, 0, 100)
    line = fails(tables, tmp_path / "logs", flags(tables, cluster.url), PYSPARK_PYTHON=str(cluster.python))
    assert line.startswith(f"{cluster.python}, the Python of Spark's workers, has no module 'tailrace'.")
    assert "Make an archive with: tailrace pipeline package, and pass it with --archives" in line


def test_workers_without_the_python_are_named_it(
    tables: RoutedTables, cluster: StandaloneCluster, archive: Path, tmp_path: Path
) -> None:
    write(tables, 0, 100)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "drivers-python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "drivers-python").chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    given = flags(tables, cluster.url, archive)
    line = fails(tables, tmp_path / "logs", given, PYSPARK_PYTHON="drivers-python", PATH=path)
    assert line.startswith("Spark's workers have no Python drivers-python. Set PYSPARK_PYTHON to a Python 3.")


def test_workers_with_another_python_are_told_which(tables: RoutedTables, archive: Path, tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path / "other", other_python()) as cluster:
        write(tables, 0, 100)
        line = fails(tables, tmp_path / "logs", flags(tables, cluster.url, archive), PYSPARK_PYTHON="python3")
        assert line.startswith(f"{cluster.python}3, the Python of Spark's workers, is Python 3.")
        assert f"and the archive is for Python 3.{sys.version_info.minor} for Linux" in line


def other_python() -> str:
    for minor in range(10, 16):
        found = shutil.which(f"python3.{minor}") if minor != sys.version_info.minor else None
        if found is not None and not subprocess.run([found, "-c", "import venv"], capture_output=True).returncode:
            return found
    pytest.skip("this machine has no other Python")


def test_a_cluster_without_room_is_reported_while_changes_wait(
    tables: RoutedTables, cluster: StandaloneCluster, archive: Path, tmp_path: Path
) -> None:
    write(tables, 0, 100)
    given = [*flags(tables, cluster.url, archive), "--conf", "spark.executor.memory=64g"]
    with CommandProcess(tmp_path / "logs", "pipeline", *given, environment=LOCAL) as pipeline:
        pipeline.await_line("gives this pipeline no executors, and changes wait for them")
        eventually(
            lambda: "spark.executor.memory" in str(tables.api.sql("SELECT last_error FROM system.pipelines")), "last_error", 20
        )
        assert pipeline.terminate() == 0
