"""One Spark session for all tests of the pipeline: starting one takes longer than most tests do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.pipeline.session import spark_session
from tests.support.api import Api
from tests.support.server import ServerProcess


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
