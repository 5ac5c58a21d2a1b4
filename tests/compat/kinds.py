"""The clients that are tried: what they are called, how each is started, and whether it can be started here."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
SPARK_FOLDER = Path(__file__).resolve().parent / "spark"
SPARK = "4.2.0"
"""The newest for which Maven Central has the Kafka connector."""
SPARK_JARS = SPARK_FOLDER / "target" / SPARK
SPARK_PYTHON = SPARK_FOLDER / "target" / "python" / "bin" / "python"
JAVA_FOLDER = Path(__file__).resolve().parent / "java"
JAVA_JAR = JAVA_FOLDER / "target" / "compat.jar"
GO_FOLDER = Path(__file__).resolve().parent / "go"
GO_PROGRAM = GO_FOLDER / "target" / "compat-go"
NODE_FOLDER = Path(__file__).resolve().parent / "node"
NODE_MODULES = NODE_FOLDER / "node_modules"


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


def _python(
    name: str, title: str, module: str, missing: Callable[[], str | None], *, always: bool = True, python: str = sys.executable
) -> ClientKind:
    command = [python, "-m", "tests.compat.serve_client", module]
    return ClientKind(
        name, title, always, lambda bootstrap: [*command, bootstrap], missing, lambda: _output([*command, "version"])
    )


def _nothing_missing() -> None:
    return None


def _no_kcat() -> str | None:
    return None if shutil.which("kcat") else "kcat is not installed (`apt-get install kcat`)"


def _no_java() -> str | None:
    return None if JAVA_JAR.exists() and shutil.which("java") else "the Java client is not built (`make compat` does)"


def _no_spark() -> str | None:
    return (
        None
        if SPARK_PYTHON.exists() and SPARK_JARS.exists() and shutil.which("java")
        else "Spark or Java is not installed (`make compat` does)"
    )


def _no_go() -> str | None:
    return None if GO_PROGRAM.exists() else "the Go client is not built (`make compat` does where `go` is installed)"


def _no_node() -> str | None:
    return (
        None
        if NODE_MODULES.exists() and shutil.which("node")
        else "KafkaJS is not installed (`make compat` does where `node` and `npm` are)"
    )


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


KINDS = (
    _python("confluent-kafka", "confluent-kafka", "confluent", _nothing_missing),
    _python("kafka-python", "kafka-python", "kafka_python", _nothing_missing),
    _python("aiokafka", "aiokafka", "aiokafka", _nothing_missing),
    _python("kcat", "kcat", "kcat", _no_kcat),
    ClientKind(
        "java",
        "Java (kafka-clients)",
        False,
        lambda bootstrap: ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(JAVA_JAR), "serve", bootstrap],
        _no_java,
        lambda: _output(["java", "-jar", str(JAVA_JAR), "version"]),
    ),
    ClientKind(
        "franz-go",
        "Go (franz-go)",
        False,
        lambda bootstrap: [str(GO_PROGRAM), "serve", bootstrap],
        _no_go,
        lambda: _output([str(GO_PROGRAM), "version"]),
    ),
    ClientKind(
        "kafkajs",
        "Node (KafkaJS)",
        False,
        lambda bootstrap: ["node", str(NODE_FOLDER / "main.js"), "serve", bootstrap],
        _no_node,
        lambda: _output(["node", str(NODE_FOLDER / "main.js"), "version"]),
    ),
    _python("spark", 'Spark\'s `format("kafka")`', "spark", _no_spark, always=False, python=str(SPARK_PYTHON)),
)
