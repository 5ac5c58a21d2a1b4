"""Apache Kafka: one process that is broker and controller (KRaft), with the settings it comes with.

What is set is what a single node needs, and, for `fsync`, that every batch is flushed before it is acknowledged. The JVM gets
the options that Kafka's own start script gives it.
"""

import subprocess
from pathlib import Path

from bench.peers.contract import PeerFailure
from bench.peers.greeting import answers_kafka
from bench.peers.kafka_jars import KAFKA
from bench.peers.process import ServerPeer, free_address
from tailrace.model.address import Address
from tailrace.model.commit import Durability

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
        """Formatting the folder, which is done once in its life, does not count."""
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
