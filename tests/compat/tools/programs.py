"""The tools that are tried: their versions, where `tests.compat.prepare` puts them, and whether they are here."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.peers.debezium import DEBEZIUM
from bench.peers.kafka import KAFKA
from tests.compat.kinds import KINDS

FOLDER = Path(__file__).resolve().parent
TARGET = FOLDER / "target"
KAFKA_POM = FOLDER / "pom.xml"
KAFKA_JARS = TARGET / f"kafka-{KAFKA}"
"""The broker, the command line, Connect, MirrorMaker and Streams."""
DEBEZIUM_JARS = TARGET / f"debezium-{DEBEZIUM}-{KAFKA}"
STREAMS_FOLDER = FOLDER / "streams"
STREAMS_JAR = STREAMS_FOLDER / "target" / "compat-streams.jar"
FLINK = "2.0.1"
FLINK_CONNECTOR = "4.0.1-2.0"
FLINK_FOLDER = FOLDER / "flink"
FLINK_JAR = FLINK_FOLDER / "target" / "compat-flink.jar"
FLINK_JARS = FLINK_FOLDER / "target" / "lib"
FRAMEWORKS = {"faststream": "0.7.8", "faust-streaming": "0.15.3", "quixstreams": "3.28.1"}
"""Packages of PyPI, each of which gets an environment of its own."""
EXTRAS = {"faststream": "[kafka,confluent]"}
_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
"""For short runs: no second compiler."""


class Tool(NamedTuple):
    title: str
    version: str
    missing: Callable[[], str | None]
    """What it needs and what is not there."""


def java(main: str, *arguments: str, jars: tuple[Path, ...] = (), flags: tuple[str, ...] = ()) -> list[str]:
    """Return the command that runs a main class with Kafka's jars, and others before them."""
    path = ":".join([*(str(jar) for jar in jars), f"{KAFKA_JARS}/*"])
    return ["java", *_JVM, *flags, "-cp", path, main, *arguments]


def python_of(package: str) -> Path:
    """Return the interpreter of the environment of a package."""
    return TARGET / "python" / package / "bin" / "python"


def tool(of: Tool, does: str, *, short: bool = False, always: bool = False) -> pytest.MarkDecorator:
    """Mark a test as a row of the grid. Tests that are `short` are played by `make smoke`, too, and some by `make test`."""
    return pytest.mark.tool(of, does, short, always)


def _needs(*files: Path) -> Callable[[], str | None]:
    def missing() -> str | None:
        if shutil.which("java") is None:
            return "Java is not installed (`make compat` does)"
        return None if all(file.exists() for file in files) else "its jars are not here (`make compat` gets them)"

    return missing


def _framework(package: str, title: str) -> Tool:
    def missing() -> str | None:
        return None if python_of(package).exists() else f"{package} is not installed (`make compat` does)"

    return Tool(title, FRAMEWORKS[package], missing)


COMMANDS = Tool("Kafka's command line", KAFKA, _needs(KAFKA_JARS))
CONNECT = Tool("Kafka Connect", KAFKA, _needs(KAFKA_JARS))
MIRROR_MAKER = Tool("MirrorMaker 2", KAFKA, _needs(KAFKA_JARS))
STREAMS = Tool("Kafka Streams", KAFKA, _needs(KAFKA_JARS, STREAMS_JAR))
DEBEZIUM_CONNECTOR = Tool("Debezium's connector for PostgreSQL", DEBEZIUM, _needs(KAFKA_JARS, DEBEZIUM_JARS))
FLINK_KAFKA = Tool("Flink's Kafka connector", f"{FLINK_CONNECTOR} with Flink {FLINK}", _needs(FLINK_JAR, FLINK_JARS))
FASTSTREAM = _framework("faststream", "FastStream")
FAUST = _framework("faust-streaming", "Faust (faust-streaming)")
QUIX = _framework("quixstreams", "Quix Streams")

SECURED_CLIENTS = {kind.name: Tool(kind.title, "as above", kind.missing) for kind in KINDS if kind.name != "spark"}
"""The clients of the other section, where they log in over TLS."""

TOOLS = (
    *SECURED_CLIENTS.values(),
    *(COMMANDS, CONNECT, MIRROR_MAKER, STREAMS, DEBEZIUM_CONNECTOR, FLINK_KAFKA, FASTSTREAM, FAUST, QUIX),
)
