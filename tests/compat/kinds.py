"""The clients that are tried: what they are called, how each is started, and whether it can be started here."""

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

JAVA_FOLDER = Path(__file__).parent / "java"
JAVA_JAR = JAVA_FOLDER / "target" / "compat.jar"


class ClientKind(NamedTuple):
    name: str
    title: str
    always: bool
    """Tried in every run; the others only in runs of everything."""
    command: Callable[[str], list[str]]
    """By the address of the server."""
    missing: Callable[[], str | None]
    """What it needs and what is not there."""
    version: Callable[[], str]


def _python(name: str, title: str, module: str, *, always: bool = True, missing: Callable[[], str | None]) -> ClientKind:
    return ClientKind(
        name,
        title,
        always,
        lambda bootstrap: [sys.executable, "-m", "tests.compat.serve_client", module, bootstrap],
        missing,
        lambda: importlib.import_module(f"tests.compat.clients.{module}").Adapter.version(),
    )


def _nothing_missing() -> None:
    return None


def _no_kcat() -> str | None:
    return None if shutil.which("kcat") else "kcat is not installed (`apt-get install kcat`)"


def _no_java() -> str | None:
    return None if JAVA_JAR.exists() and shutil.which("java") else "the Java client is not built (`make compat` does)"


def _no_spark() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (`make compat` does)"
    return None if shutil.which("java") else "Spark needs Java"


def _java_version() -> str:
    return subprocess.run(["java", "-jar", str(JAVA_JAR), "version"], capture_output=True, text=True, check=True).stdout.strip()


KINDS = (
    _python("confluent-kafka", "confluent-kafka", "confluent", missing=_nothing_missing),
    _python("kafka-python", "kafka-python", "kafka_python", missing=_nothing_missing),
    _python("aiokafka", "aiokafka", "aiokafka", missing=_nothing_missing),
    _python("kcat", "kcat", "kcat", missing=_no_kcat),
    ClientKind(
        "java",
        "Java (kafka-clients)",
        False,
        lambda bootstrap: ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(JAVA_JAR), "serve", bootstrap],
        _no_java,
        _java_version,
    ),
    _python("spark", 'Spark\'s `format("kafka")`', "spark", always=False, missing=_no_spark),
)
