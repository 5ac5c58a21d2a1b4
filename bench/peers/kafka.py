"""Apache Kafka as one process that is broker and controller (KRaft), Spark's connector for it, and how their jars are fetched.

The jars are downloaded from Maven Central once and kept. Only settings that a single node needs are changed, and with `fsync`
that every message is synced.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.peers.servers import PeerFailure, ServerPeer, answers_kafka, free_address
from tailrace.model.address import Address
from tailrace.model.commit import Durability

KAFKA = "4.3.1"
"""The newest release whose broker is on Maven Central (2026-11)."""

_POM = Path(__file__).with_name("kafka.pom.xml")
_TOOLS_POM = Path(__file__).with_name("kafka_tools.pom.xml")
_LAST_WORDS = 500


class NotObtainable(Exception):
    """Something that a subject needs is missing. The message says what, in one line."""


def kafka_jars(cache: Path) -> Path:
    """Return a folder with all jars of a broker."""
    require_program("java")
    return jars_of(_POM, {"kafka.version": KAFKA}, cache / f"kafka-{KAFKA}", f"Kafka {KAFKA}")


def kafka_tool_jars(cache: Path) -> Path:
    """Return a folder with all jars of Kafka's tools."""
    require_program("java")
    return jars_of(_TOOLS_POM, {"kafka.version": KAFKA}, cache / f"kafka-tools-{KAFKA}", f"the tools of Kafka {KAFKA}")


def jars_of(pom: Path, versions: Mapping[str, str], folder: Path, name: str) -> Path:
    """Return the folder with all jars of a POM, which Maven gets unless they are there."""
    if not folder.exists():
        require_program("mvn")
        # Under another name first, so that a folder with its own name is complete.
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), f"-DoutputDirectory={unfinished.resolve()}"]
        command += [*(f"-D{key}={version}" for key, version in versions.items()), "dependency:copy-dependencies"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            why = " ".join(done.stdout.split())[:_LAST_WORDS]
            raise NotObtainable(f"Maven could not get {name}: {why}")
        unfinished.rename(folder)
    return folder


def require_program(name: str) -> None:
    if shutil.which(name) is None:
        raise NotObtainable(f"{name} is not installed")


_HEAP = ("-Xms1G", "-Xmx1G")
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_CLUSTER = "YmVuY2htYXJrLWNsdXN0ZQ"


class KafkaPeer(ServerPeer):
    def __init__(
        self,
        jars: Path,
        folder: Path,
        durability: Durability,
        address: Address | None = None,
        settings: Mapping[str, object] | None = None,
        formatted_with: Sequence[str] = (),
        answers: Callable[[Address], bool] = answers_kafka,
    ) -> None:
        """Other settings are added to its own; `formatted_with` are arguments of the command that formats the folder."""
        name = f"Kafka {KAFKA}" + (", flush per message" if durability == "fsync" else "")
        self._java = ["java", *_HEAP, *JVM, "-cp", f"{jars}/*"]
        address = address or free_address()
        self._formatted_with = formatted_with
        self._settings = folder / "server.properties"
        self._settings.write_text(_settings(address, folder / "data", durability, settings or {}))
        super().__init__(name, address, [*self._java, "kafka.Kafka", str(self._settings)], folder, answers)

    def start(self) -> float:
        """Start the broker. Formatting the folder, which is done once, does not count."""
        self._format()
        return super().start()

    def _format(self) -> None:
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings)]
        command += self._formatted_with
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerFailure(f"Kafka's folder could not be formatted: {done.stdout} {done.stderr}")


def _settings(address: Address, data: Path, durability: Durability, more: Mapping[str, object]) -> str:
    controller = free_address()
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 0,
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"0@{controller}",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    if durability == "fsync":
        settings["log.flush.interval.messages"] = 1
    return "".join(f"{name}={value}\n" for name, value in {**settings, **more}.items())


CONNECTOR = "4.2.0"
"""The newest on Maven Central (2026-11). It runs in Spark 4.3 too, so both sides use the same Spark."""

_CONNECTOR_POM = Path(__file__).resolve().parents[2] / "tests" / "compat" / "spark" / "pom.xml"


def connector_jars(cache: Path) -> Path:
    """Return a folder with all jars that Spark needs for Kafka."""
    name = f"Spark's Kafka connector {CONNECTOR}"
    return jars_of(_CONNECTOR_POM, {"spark.version": CONNECTOR}, cache / f"spark-kafka-{CONNECTOR}", name)
