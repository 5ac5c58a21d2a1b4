"""Gets what `make compat` needs beyond the development environment, each by its ordinary package manager.

kcat by apt-get, the Java client by Maven, those of Go and Node by their own tools where these are installed, and
by pip the oldest Spark that is supported, with this package, into an environment of its own.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.compat.kinds import (
    GO_FOLDER,
    GO_PROGRAM,
    JAVA_FOLDER,
    JAVA_JAR,
    NODE_FOLDER,
    ROOT,
    SPARK,
    SPARK_FOLDER,
    SPARK_JARS,
    SPARK_PYTHON,
)


def main() -> None:
    if shutil.which("kcat") is None:
        _install("kcat")
    if shutil.which("java") is None:
        _install("default-jdk-headless")
    if shutil.which("mvn") is None:
        _install("maven")
    if shutil.which("mvn") is not None and _is_outdated():
        _maven(JAVA_FOLDER, "package")
    if shutil.which("go") is not None:
        _run("go", "build", "-C", str(GO_FOLDER), "-o", str(GO_PROGRAM), ".")
    if shutil.which("npm") is not None:
        _run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE_FOLDER))
    if not SPARK_PYTHON.exists():
        venv.create(SPARK_PYTHON.parent.parent, with_pip=True, clear=True)
    install = (str(SPARK_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*install, f"pyspark=={SPARK}", "--editable", f"{ROOT}[spark]")
    prepare_connector()


def prepare_connector() -> None:
    """Get Spark's Kafka connector by Maven, unless it is there."""
    if not SPARK_JARS.exists():
        _maven(SPARK_FOLDER, f"-Dspark.version={SPARK}", f"-DoutputDirectory={SPARK_JARS}", "dependency:copy-dependencies")


def _is_outdated() -> bool:
    sources = [JAVA_FOLDER / "pom.xml", *(path for path in (JAVA_FOLDER / "src").rglob("*") if path.is_file())]
    return not JAVA_JAR.exists() or max(map(_modified, sources)) > _modified(JAVA_JAR)


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def _install(package: str) -> None:
    """By apt-get, where there is one. A client that is still missing is shown as not tried."""
    if shutil.which("apt-get") is None:
        print(f"{package} is not installed, and there is no apt-get to install it", file=sys.stderr)
        return
    rights = [] if os.geteuid() == 0 else ["sudo"]
    _run(*rights, "apt-get", "update", "--quiet=2")
    _run(*rights, "apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", package)


def _maven(folder: Path, *goals: str) -> None:
    _run("mvn", "--quiet", "--batch-mode", "--file", str(folder / "pom.xml"), *goals)


def _run(*command: str) -> None:
    print("+", *command, file=sys.stderr)
    if subprocess.run(command).returncode != 0:
        print(f"{command[0]} failed; what it was for will be shown as not tried", file=sys.stderr)


if __name__ == "__main__":
    main()
