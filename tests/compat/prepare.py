"""Gets what `make compat` needs beyond the development environment, each by its ordinary package manager.

kcat by apt-get, the Java client and the tools of Kafka's ecosystem by Maven, the clients of Go and Node by their own tools
where these are installed, and by pip the oldest Spark that is supported, with this package, and frameworks of Python, each into
an environment of its own. What can't be had is shown as not tried.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.peers.debezium import debezium_jars
from bench.peers.kafka import KAFKA, NotObtainable, jars_of
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
from tests.compat.tools.programs import (
    EXTRAS,
    FLINK,
    FLINK_CONNECTOR,
    FLINK_FOLDER,
    FLINK_JAR,
    FRAMEWORKS,
    KAFKA_JARS,
    KAFKA_POM,
    STREAMS_FOLDER,
    STREAMS_JAR,
    TARGET,
    python_of,
)


def main() -> None:
    if shutil.which("kcat") is None:
        _install("kcat")
    if shutil.which("java") is None:
        _install("default-jdk-headless")
    if shutil.which("mvn") is None:
        _install("maven")
    if shutil.which("mvn") is not None:
        _build(JAVA_FOLDER, JAVA_JAR)
        _prepare_tools()
    if shutil.which("go") is not None:
        _run("go", "build", "-C", str(GO_FOLDER), "-o", str(GO_PROGRAM), ".")
    if shutil.which("npm") is not None:
        _run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE_FOLDER))
    _install_python(SPARK_PYTHON, f"pyspark=={SPARK}", "--editable", f"{ROOT}[spark]")
    for package, version in FRAMEWORKS.items():
        _install_python(python_of(package), f"{package}{EXTRAS.get(package, '')}=={version}")
    prepare_connector()


def prepare_connector() -> None:
    """Get Spark's Kafka connector by Maven, unless it is there."""
    if not SPARK_JARS.exists():
        _maven(SPARK_FOLDER, f"-Dspark.version={SPARK}", f"-DoutputDirectory={SPARK_JARS}", "dependency:copy-dependencies")


def _prepare_tools() -> None:
    TARGET.mkdir(exist_ok=True)
    try:
        jars_of(KAFKA_POM, {"kafka.version": KAFKA}, KAFKA_JARS, f"the tools of Kafka {KAFKA}")
        debezium_jars(TARGET)
    except NotObtainable as why:
        print(f"{why}; it will be shown as not tried", file=sys.stderr)
    _build(STREAMS_FOLDER, STREAMS_JAR, f"-Dkafka.version={KAFKA}")
    _build(FLINK_FOLDER, FLINK_JAR, f"-Dflink.version={FLINK}", f"-Dconnector.version={FLINK_CONNECTOR}")


def _build(folder: Path, jar: Path, *properties: str) -> None:
    """Build a project of Maven, unless its jar is newer than its files."""
    sources = [folder / "pom.xml", *(path for path in (folder / "src").rglob("*") if path.is_file())]
    if not jar.exists() or max(map(_modified, sources)) > _modified(jar):
        _maven(folder, *properties, "package")


def _install_python(python: Path, *packages: str) -> None:
    """Install packages into the environment of this interpreter, which is made if it is not there."""
    if not python.exists():
        venv.create(python.parent.parent, with_pip=True, clear=True)
    _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)


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
