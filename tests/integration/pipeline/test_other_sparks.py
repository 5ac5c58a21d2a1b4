"""Topics through Spark Connect and in Declarative Pipelines, each in a process of its own. Played with --all-faults."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.api import Api
from tests.support.server import ServerProcess

SECONDS = 580
DEFINITION = """
from pyspark import pipelines as dp

OPTIONS = {{"server": "{url}", "topic": "to"}}
dp.create_sink("copy", "tailrace", OPTIONS)


@dp.append_flow(target="copy")
def flow():
    source = spark.readStream.format("tailrace").option("server", "{url}").option("subscribe", "from")
    return source.option("startingOffsets", "earliest").load().select("key", "value")
"""
SPECIFICATION = """
name: copy
storage: file://{folder}/storage
libraries:
  - glob:
      include: definitions/**
"""


@pytest.fixture(autouse=True)
def with_all_faults(all_faults: bool) -> None:
    if not all_faults:
        pytest.skip("needs a Spark of its own: --all-faults")
    pytest.importorskip("grpc", reason="Spark Connect needs pip install 'pyspark[connect]'")


@pytest.fixture(autouse=True)
def topics(api: Api) -> None:
    api.create_topic("from")
    api.create_topic("to")


def run(*command: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_topics_are_read_and_written_through_spark_connect(server: ServerProcess, tmp_path: Path) -> None:
    child = Path(__file__).with_name("connect_child.py")
    said = run(sys.executable, str(child), server.url, str(tmp_path), folder=tmp_path)
    assert "pyspark.sql.connect.session has read 100 rows" in said


@pytest.mark.timeout(600)
def test_topics_are_source_and_sink_of_a_declarative_pipeline(server: ServerProcess, api: Api, tmp_path: Path) -> None:
    command = shutil.which("spark-pipelines", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("spark-pipelines is not installed")
    api.sql('INSERT INTO "from" (key, value) VALUES (?, ?)', "k", "v")
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "copy.py").write_text(DEFINITION.format(url=server.url))
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=tmp_path))
    run(command, "run", "--spec", str(tmp_path / "spark-pipeline.yml"), folder=tmp_path)
    (partition,) = api.ask("/api/topics/to/partitions")["partitions"]
    assert partition["end_offset"] == 1
