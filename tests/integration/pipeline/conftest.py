"""One Spark session for all tests of the pipeline: starting one takes longer than most tests do.

`pytest tests/integration/pipeline --all-faults` also plays the faults that need a Spark of their own, one after another.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.model.pipeline import PipelineReport
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.router import Router, RouterSettings
from tailrace.pipeline.session import spark_session
from tailrace.pipeline.table_changes import TableChanges
from tests.support.api import Api
from tests.support.routed_tables import RoutedTables
from tests.support.server import ServerProcess

STOP_SECONDS = 100
TEST_SECONDS = 400
"""Starting a Spark takes ten seconds alone on a machine, and minutes among many; whichever test is first waits for it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-faults", action="store_true", help="kill pipelines at every named point, and Spark Connect too")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture
def all_faults(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--all-faults", default=False))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("local[2]", name="tests")
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield session
    session.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--durability", "relaxed") as server:
        yield server


@pytest.fixture
def api(server: ServerProcess) -> Api:
    return Api(server.url)


@pytest.fixture
def tables(server: ServerProcess) -> RoutedTables:
    return RoutedTables(server)


RunOnce = Callable[..., list[PipelineReport]]
Running = Callable[..., AbstractContextManager[list[PipelineReport]]]


def router_of(
    spark: SparkSession, server: ServerProcess, reports: list[PipelineReport], most_rows: int = 200_000, **settings: Any
) -> Router:
    given = RouterSettings(ServerAddress(server.url), **settings)
    return Router(spark, TableChanges(given.server, most_rows, given.retry_seconds), given, reports.append)


@pytest.fixture
def route_once(spark: SparkSession, server: ServerProcess) -> RunOnce:
    """Routes what is there; what it reported."""

    def run(**settings: Any) -> list[PipelineReport]:
        reports: list[PipelineReport] = []
        router_of(spark, server, reports, **settings).run(once=True)
        return reports

    return run


@pytest.fixture
def routing(spark: SparkSession, server: ServerProcess) -> Running:
    """`with routing() as reports:` routes beside the test, and fails if the router does."""

    @contextmanager
    def run(**settings: Any) -> Iterator[list[PipelineReport]]:
        reports: list[PipelineReport] = []
        failures: list[BaseException] = []
        router = router_of(spark, server, reports, **settings)

        def work() -> None:
            try:
                router.run()
            except BaseException as error:  # noqa: BLE001  told to the test
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield reports
        finally:
            router.stop()
            thread.join(STOP_SECONDS)
        assert not thread.is_alive(), f"the router did not stop within {STOP_SECONDS} s"
        if failures:
            raise failures[0]

    return run
