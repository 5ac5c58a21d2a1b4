"""Apache Kafka as one process that is broker and controller (KRaft), and Spark's connector for it.

The jars are downloaded from Maven Central once and kept. Only settings that a single node needs are changed, and with `fsync`
that every message is synced.
"""

import shutil
import subprocess
from pathlib import Path

from bench.peers.servers import PeerFailure, ServerPeer, answers_kafka, free_address
from tailrace.model.address import Address
from tailrace.model.commit import Durability

KAFKA = "4.3.1"
"""The newest release whose broker is on Maven Central (2026-11)."""

_POM = Path(__file__).with_name("kafka.pom.xml")
_LAST_WORDS = 500


class NotObtainable(Exception):
    """Something that a subject needs is missing. The message says what, in one line."""


def kafka_jars(cache: Path) -> Path:
    """Return a folder with all jars of a broker."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NotObtainable(f"{program} is not installed")
    folder = cache / f"kafka-{KAFKA}"
    if not folder.exists():
        # Under another name first, so that a folder with its own name is complete.
        unfinished = folder.with_suffix(".unfinished")
        _copy_dependencies(unfinished)
        unfinished.rename(folder)
    return folder


def _copy_dependencies(folder: Path) -> None:
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(_POM), f"-Dkafka.version={KAFKA}"]
    command += [f"-DoutputDirectory={folder.resolve()}", "dependency:copy-dependencies"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        why = " ".join(done.stdout.split())[:_LAST_WORDS]
        raise NotObtainable(f"Maven could not get Kafka {KAFKA}: {why}")


_HEAP = ("-Xms1G", "-Xmx1G")
_JVM = (
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
    def __init__(self, jars: Path, folder: Path, durability: Durability) -> None:
        name = f"Kafka {KAFKA}" + (", flush per message" if durability == "fsync" else "")
        self._java = ["java", *_HEAP, *_JVM, "-cp", f"{jars}/*"]
        address = free_address()
        self._settings = folder / "server.properties"
        self._settings.write_text(_settings(address, folder / "data", durability))
        super().__init__(name, address, [*self._java, "kafka.Kafka", str(self._settings)], folder, answers_kafka)

    def start(self) -> float:
        """Start the broker. Formatting the folder, which is done once, does not count."""
        self._format()
        return super().start()

    def _format(self) -> None:
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerFailure(f"Kafka's folder could not be formatted: {done.stdout} {done.stderr}")


def _settings(address: Address, data: Path, durability: Durability) -> str:
    controller = free_address()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    if durability == "fsync":
        settings["log.flush.interval.messages"] = 1
    return "".join(f"{name}={value}\n" for name, value in settings.items())


CONNECTOR = "4.2.0"
"""The newest on Maven Central (2026-11). It runs in Spark 4.3 too, so both sides use the same Spark."""

_CONNECTOR_POM = Path(__file__).resolve().parents[2] / "tests" / "compat" / "spark" / "pom.xml"


def connector_jars(cache: Path) -> Path:
    """Return a folder with all jars that Spark needs for Kafka."""
    folder = cache / f"spark-kafka-{CONNECTOR}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(_CONNECTOR_POM), f"-Dspark.version={CONNECTOR}"]
        command += [f"-DoutputDirectory={unfinished.resolve()}", "dependency:copy-dependencies"]
        if shutil.which("mvn") is None:
            raise NotObtainable("mvn is not installed")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            why = " ".join(done.stdout.split())[:_LAST_WORDS]
            raise NotObtainable(f"Maven could not get Spark's Kafka connector {CONNECTOR}: {why}")
        unfinished.rename(folder)
    return folder
