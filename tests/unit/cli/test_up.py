"""The lines that `tailrace up` prints, and what it passes on."""

import sys
from pathlib import Path

import pytest

from tailrace.cli.pipeline import check_connector_if_needed
from tailrace.cli.settings import PipelineSection
from tailrace.cli.up import ManagedProcess, Supervisor, _flags, _print_line
from tailrace.model.server_credentials import ServerCredentials
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
print("token", os.environ.get("TAILRACE_TOKEN"), b"secret" in pathlib.Path("/proc/self/environ").read_bytes(), flush=True)
"""


def test_processes_get_in_by_a_secret_that_their_environment_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = ServerCredentials("secret-of-up")
    # As `up` itself has it, for what it asks the server.
    monkeypatch.setenv("TAILRACE_TOKEN", "secret-of-up")
    lines: list[str] = []
    supervisor = Supervisor(lambda name, line: lines.append(line), credentials)
    ready = supervisor.start(ManagedProcess("server", [sys.executable, "-c", CHILD], is_essential=True), until="token")
    assert ready == "token secret-of-up False\n"
    supervisor.run()


def test_without_credentials_processes_are_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_TOKEN", raising=False)
    supervisor = Supervisor(lambda name, line: None)
    ready = supervisor.start(ManagedProcess("server", [sys.executable, "-c", CHILD], is_essential=True), until="token")
    assert ready == "token None False\n"
    supervisor.run()
