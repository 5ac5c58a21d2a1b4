"""An Apache Kafka of one broker for tests: killed, started again on the same folder, and reached through a network."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.peers.servers import answers_kafka, free_address
from tailrace.model.address import Address, parse_address
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess

_JVM = ("-Xms256m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_CLUSTER = "dGFpbHJhY2UtdGVzdHMtMQ"
_READY_SECONDS = 90.0


class ApacheKafka:
    """`folder` keeps its records. `advertised` is what clients are told to connect to; by default where it listens.

    Other settings are added to its own; `formatted_with` are arguments of the command that formats the folder.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        listens: Address,
        advertised: str | None = None,
        settings: Mapping[str, object] | None = None,
        formatted_with: Sequence[str] = (),
    ) -> None:
        self._java = ["java", *_JVM, "-cp", f"{jars}/*"]
        self._folder = folder
        self._listens = listens
        self.address = advertised or str(listens)
        self._settings = {**_settings(folder, listens, self.address), **(settings or {})}
        self._file = folder / "server.properties"
        self._formatted_with = formatted_with
        self._process: LoggedProcess | None = None
        self._starts = 0

    def start(self) -> "ApacheKafka":
        """Start it and wait until it answers."""
        self.launch()
        self.await_ready()
        return self

    def launch(self) -> None:
        """Start it without waiting, for brokers that wait for each other."""
        if not self._file.exists():
            self._format()
        self._starts += 1
        self._process = LoggedProcess([*self._java, "kafka.Kafka", str(self._file)], self._folder / f"said-{self._starts}")

    def await_ready(self) -> None:
        process = self._process
        assert process is not None
        eventually(lambda: answers_kafka(self._listens) or process.has_ended, "a Kafka that answers", _READY_SECONDS)
        assert not process.has_ended, process.last_words

    def kill(self) -> None:
        """SIGKILL: what it has written is in the page cache."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        command = [
            *self._java,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            _CLUSTER,
            "-c",
            str(self._file),
            *self._formatted_with,
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            with suppress(OSError):
                self._file.unlink()
            raise AssertionError(f"Kafka's folder could not be formatted: {done.stdout} {done.stderr}")


def _settings(folder: Path, listens: Address, advertised: str) -> dict[str, object]:
    controller = free_address()
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{listens},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{parse_address(advertised)}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
    }
