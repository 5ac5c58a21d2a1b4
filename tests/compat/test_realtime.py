"""The real-time mode with Spark's own Kafka connector, which is on Maven Central: exactly once over kills and new routes.

The benchmark of changes of PostgreSQL that are routed in real time needs the connector, too, so it is tried here.
"""

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.capture import routed
from bench.workspace import Workspace
from tests.bench.scale import TINY
from tests.compat.kinds import SPARK, SPARK_JARS, SPARK_PYTHON
from tests.integration.security.secured import PASSWORD, tls_server
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.ports import free_port
from tests.support.routed_tables import RoutedTables
from tests.support.routing_model import Change, Route
from tests.support.server import ServerProcess

TABLE = "chat.messages"
TOPICS = ("all", "odd", "odd.dead_letters")
ROUTED_SECONDS = 120.0
REALTIME = ("--latency", "realtime")


@pytest.fixture
def jars(all_clients: bool) -> Path:
    if not all_clients:
        pytest.skip("Spark's Kafka connector is not on PyPI; `make smoke` fetches it")
    assert SPARK_JARS.exists(), "run python -m tests.compat.prepare"
    return SPARK_JARS


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[RoutedTables]:
    http, kafka = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with ServerProcess(tmp_path / "data", "--http", http, "--kafka", kafka) as server:
        tables = RoutedTables(server)
        tables.create(TABLE, user_id="INT", body="TEXT")
        tables.api.create_topic("all", 3)
        tables.api.create_topic("odd")
        tables.route(Route("all", TABLE, ("insert", "update", "delete"), "diff", partition_by=("user_id",)))
        tables.route(Route("odd", TABLE, ("insert", "update"), "full", _is_odd), "10 / user_id % 2 = 1")
        yield tables


def _is_odd(change: Change) -> bool:
    return 10 // change.row["user_id"] % 2 == 1


def write(tables: RoutedTables, first: int, count: int) -> None:
    ids = range(first, first + count)
    for start in range(0, count, 500):
        tables.insert(TABLE, *({"id": id, "user_id": id % 4, "body": f"b{id}"} for id in ids[start : start + 500]))
    for id in ids[:20:2]:
        tables.update(TABLE, id, body=None)
        tables.update(TABLE, id, user_id=3)
    for id in ids[:20:5]:
        tables.delete(TABLE, id)


def until_routed(tables: RoutedTables, pipeline: CommandProcess) -> None:
    def is_routed() -> bool:
        assert not pipeline.has_ended, pipeline.output
        statuses = tables.api.ask("/api/pipelines")
        return bool(statuses) and statuses[0]["lag"] == 0

    eventually(is_routed, "all changes routed", ROUTED_SECONDS)


def start(tables: RoutedTables, folder: Path, jars: Path, *latency: str, python: str = sys.executable) -> CommandProcess:
    flags = ("--server", tables.server.url, "--master", "local[2]", "--jars", str(jars), *latency)
    return CommandProcess(folder, "pipeline", *flags, python=python)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("python", [sys.executable, str(SPARK_PYTHON)], ids=["own PySpark", f"PySpark {SPARK}"])
def test_routes_in_real_time_exactly_once(tables: RoutedTables, tmp_path: Path, jars: Path, python: str) -> None:
    write(tables, 0, 100)
    with start(tables, tmp_path / "first", jars, *REALTIME, python=python) as pipeline:
        until_routed(tables, pipeline)
        write(tables, 1_000, 200)
        until_routed(tables, pipeline)
        tables.check(TOPICS)
        # A route that is added while the query runs, and one that is dropped.
        tables.api.create_topic("keys")
        tables.route(Route("keys", TABLE, ("insert",), "key"))
        write(tables, 2_000, 100)
        tables.end_routes("keys", TABLE)
        write(tables, 3_000, 100)
        until_routed(tables, pipeline)
        tables.check([*TOPICS, "keys"])
        write(tables, 4_000, 1_000)
        # Somewhere in the middle.
        pipeline.kill()
    write(tables, 6_000, 100)
    with start(tables, tmp_path / "second", jars, *REALTIME, python=python) as pipeline:
        until_routed(tables, pipeline)
        tables.check([*TOPICS, "keys"])
        write(tables, 7_000, 100)
        os.kill(pipeline.members("java")[0], signal.SIGKILL)
        assert pipeline.wait() == 1
        assert "Spark has ended" in pipeline.output
        assert "Traceback" not in pipeline.output
    with start(tables, tmp_path / "third", jars, *REALTIME, python=python) as pipeline:
        pipeline.await_line("the pipeline is running")
        until_routed(tables, pipeline)
        tables.server.kill()  # type: ignore[attr-defined]
        tables.server.start()  # type: ignore[attr-defined]
        write(tables, 8_000, 100)
        until_routed(tables, pipeline)
        tables.check([*TOPICS, "keys"])
        assert pipeline.terminate() == 0


@pytest.mark.timeout(300)
def test_alter_pipeline_changes_the_mode_of_a_running_pipeline(tables: RoutedTables, tmp_path: Path, jars: Path) -> None:
    def is_in(mode: str) -> bool:
        return bool(tables.api.sql("SELECT mode FROM system.pipelines WHERE state = 'running'") == [[mode]])

    with start(tables, tmp_path / "altered", jars) as pipeline:
        modes = [("batch", "micro-batch"), ("realtime", "real-time"), ("batch", "micro-batch")]
        for number, (latency, mode) in enumerate(modes):
            tables.api.sql(f"ALTER PIPELINE router SET (latency = '{latency}')")
            eventually(partial(is_in, mode), mode, ROUTED_SECONDS)
            write(tables, number * 1_000, 100)
            until_routed(tables, pipeline)
            tables.check(TOPICS)
        assert pipeline.terminate() == 0
    assert "batch -1" not in pipeline.output


def test_without_the_connector_it_says_in_one_line_what_to_do(tables: RoutedTables, tmp_path: Path) -> None:
    flags = ("--server", tables.server.url, "--latency", "realtime")
    with CommandProcess(tmp_path / "none", "pipeline", *flags) as pipeline:
        assert pipeline.wait() == 1
        (line,) = pipeline.output.splitlines()
    assert "real time needs Spark's Kafka connector" in line
    assert "Add --jars with a folder that has it" in line


@pytest.mark.timeout(600)
def test_the_benchmark_of_captured_changes_gives_figures_and_leaves_nothing_behind(tmp_path: Path, jars: Path) -> None:
    section = routed.run(Workspace(tmp_path, TINY, lambda _: None), jars)

    assert [figure.ours.lowest > 0 for figure in section.figures] == [True, True, True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(600)
def test_routes_in_real_time_at_a_server_with_tls_that_demands_authentication(tmp_path: Path, jars: Path) -> None:
    authority = Authority(tmp_path)
    with tls_server(tmp_path / "data", authority) as server:
        server.sql("CREATE TABLE acme.bills (id INT PRIMARY KEY)")
        server.sql("CREATE TOPIC acme.new_bills")
        server.sql("ALTER TOPIC acme.new_bills ADD SOURCE acme.bills ON INSERT")
        user = server.create_user("ALL ON SERVER", "SELECT ON ALL TABLES", "ALL ON ALL TOPICS", "ALL ON ALL TRANSACTIONAL IDS")
        environment = {"TAILRACE_CA_FILE": str(authority.file), "TAILRACE_USER": user, "TAILRACE_PASSWORD": PASSWORD}
        flags = ("--server", server.url, "--master", "local[2]", "--jars", str(jars), *REALTIME)
        with CommandProcess(tmp_path / "pipeline", "pipeline", *flags, environment=environment) as pipeline:
            for written in (1, 2):
                server.sql(f"INSERT INTO acme.bills VALUES ({written})")

                def is_routed(count: int = written) -> bool:
                    assert not pipeline.has_ended, pipeline.output
                    return server.sql('SELECT count(*) FROM "acme.new_bills"') == [[count]]

                eventually(is_routed, f"row {written} is routed", ROUTED_SECONDS)
            ((mode,),) = server.sql("SELECT mode FROM system.pipelines WHERE name = 'router'")
            assert mode == "real-time"
            assert pipeline.terminate() == 0
            assert PASSWORD not in pipeline.output
