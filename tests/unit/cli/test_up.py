"""The lines that `tailrace up` prints, and what it passes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.cli.pipeline import check_connector_if_needed
from tailrace.cli.settings import PipelineSection
from tailrace.cli.up import _flags, _print_line
from tailrace.pipeline.errors import SparkError


def test_each_line_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    _print_line("pipeline", "starting Spark at local[*]")
    _print_line("server", "WARNING: something else")
    assert capsys.readouterr().out == "pipeline | starting Spark at local[*]\n  server | WARNING: something else\n"


def test_the_pipeline_gets_the_settings_that_are_given() -> None:
    assert _flags(PipelineSection()) == []
    assert _flags(PipelineSection(latency="realtime", jars="connector", packages="a:b:1")) == [
        *("--latency", "realtime"),
        *("--jars", "connector"),
        *("--packages", "a:b:1"),
    ]


def test_real_time_without_the_connector_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"needs Spark's Kafka connector\. Add --jars with a folder"):
        check_connector_if_needed(PipelineSection(latency="realtime"))
    for latency in ("realtime", None):
        with pytest.raises(SparkError, match=f"connector, and {tmp_path} has no spark-sql-kafka"):
            check_connector_if_needed(PipelineSection(latency=latency, jars=str(tmp_path)))


def test_the_connector_is_not_asked_for_where_nothing_needs_it_or_something_brings_it(tmp_path: Path) -> None:
    check_connector_if_needed(PipelineSection())
    check_connector_if_needed(PipelineSection(latency="batch", jars=str(tmp_path)))
    check_connector_if_needed(PipelineSection(latency="realtime", packages="org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"))
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar").touch()
    check_connector_if_needed(PipelineSection(latency="realtime", jars=str(tmp_path)))


CHILD = """
import os, pathlib
from tailrace.model.parent_process import end_with_parent_if_asked
end_with_parent_if_asked()
environment = pathlib.Path("/proc/self/environ").read_bytes()
print("token", os.environ.get("TAILRACE_TOKEN"), b"TAILRACE_TOKEN" in environment, flush=True)
"""
UP = """
import os, sys
from tailrace.cli.up import ManagedProcess, Supervisor
from tailrace.model.server_credentials import ServerCredentials
credentials = ServerCredentials(sys.argv[2]) if len(sys.argv) > 2 else None
if credentials is not None:
    credentials.enter_environment()
supervisor = Supervisor(lambda name, line: None, credentials)
print(supervisor.start(ManagedProcess("server", [sys.executable, "-c", sys.argv[1]], is_essential=True), until="token"))
"""


@pytest.mark.parametrize(("secret", "said"), [(["secret-of-up"], "token secret-of-up False"), ([], "token None False")])
def test_processes_get_in_by_a_secret_that_their_environment_does_not_show(
    monkeypatch: pytest.MonkeyPatch, secret: list[str], said: str
) -> None:
    monkeypatch.delenv("TAILRACE_TOKEN", raising=False)
    ended = subprocess.run([sys.executable, "-c", UP, CHILD, *secret], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == said
