"""Debezium's connector for PostgreSQL in Kafka Connect, standalone: one process, which writes to a Kafka on the same machine.

The connector is controlled over Connect's HTTP interface, so that the process stays warm from round to round. Records are JSON
without schemas. What is set beyond what a connector needs is in `TUNED` and is told on the page.
"""

import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.kafka import JVM, KAFKA, jars_of, require_program
from bench.peers.servers import PeerFailure, PeerProcess, free_address
from tailrace.model.address import Address

DEBEZIUM = "3.6.1.Final"
"""The newest release of which Maven Central has all parts (2026-11)."""

TUNED: Mapping[str, str] = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "10",
    "statistics.metrics.enabled": "false",
    "producer.override.batch.size": "262144",
}
"""Settings that differ from the defaults for speed. With the default of 500 ms, polling alone would decide the delay. Larger
batches and more `linger.ms` were no faster, and with `linger.ms=0` it was slower."""

_POM = Path(__file__).with_name("debezium.pom.xml")
_HEAP = ("-Xms256M", "-Xmx2G")
"""As Kafka's script for Connect has it."""
_ANSWER_SECONDS = 30.0
_CHANGE_SECONDS = 60.0
_LOOK_SECONDS = 0.01


def debezium_jars(cache: Path) -> Path:
    """Return a folder with all jars of Connect and of the connector."""
    require_program("java")
    versions = {"kafka.version": KAFKA, "debezium.version": DEBEZIUM}
    return jars_of(_POM, versions, cache / f"debezium-{DEBEZIUM}-{KAFKA}", f"Debezium {DEBEZIUM}")


class ConnectPeer:
    """Kafka Connect without connectors at first."""

    def __init__(self, jars: Path, folder: Path, kafka: Address) -> None:
        self.name = f"Debezium {DEBEZIUM.removesuffix('.Final')}, Kafka {KAFKA}"
        self._address = free_address()
        settings = folder / "connect.properties"
        settings.write_text(_settings(self._address, folder / "offsets", kafka))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        self._process = PeerProcess(["java", *_HEAP, *JVM, "-cp", f"{jars}/*", main, str(settings)], folder / "connect.said")

    def start(self) -> None:
        self._process.start(self._is_ready)

    def stop(self) -> None:
        self._process.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def create(self, connector: str, settings: Mapping[str, str]) -> None:
        """Create a connector; its task may not run yet on return."""
        self._ask("PUT", f"/connectors/{connector}/config", settings)

    def pause(self, connector: str) -> None:
        """Stop the task, which closes its connections to the database, and keep its position."""
        self._ask("PUT", f"/connectors/{connector}/stop")
        self._await_state(connector, "STOPPED", tasks=0)

    def resume(self, connector: str) -> None:
        self._ask("PUT", f"/connectors/{connector}/resume")

    def remove(self, connector: str) -> None:
        self._ask("DELETE", f"/connectors/{connector}")

    def await_task(self, connector: str) -> None:
        """Wait until the task runs."""
        self._await_state(connector, "RUNNING", tasks=1)

    def check(self) -> None:
        """Raise if a connector or a task has failed."""
        for connector in self._ask("GET", "/connectors"):
            _check(self._ask("GET", f"/connectors/{connector}/status"))

    def _await_state(self, connector: str, state: str, tasks: int) -> None:
        deadline = time.monotonic() + _CHANGE_SECONDS
        while True:
            found = self._ask("GET", f"/connectors/{connector}/status")
            states = [found["connector"]["state"], *(task["state"] for task in found["tasks"])]
            if states == [state] * (1 + tasks):
                return
            _check(found)
            if time.monotonic() > deadline:
                raise PeerFailure(f"the connector was {states} after {_CHANGE_SECONDS:.0f} s, and not {state}")
            time.sleep(_LOOK_SECONDS)

    def _is_ready(self) -> bool:
        try:
            self._ask("GET", "/connectors")
        except (OSError, http.client.HTTPException, PeerFailure):
            return False
        return True

    def _ask(self, method: str, path: str, question: object = None) -> Any:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_SECONDS)
            try:
                body = None if question is None else json.dumps(question)
                connection.request(method, path, body, {"content-type": "application/json"})
                answer = connection.getresponse()
                said = answer.read()
            finally:
                connection.close()
            # A connector that was created this moment has no status yet.
            if answer.status == http.client.NOT_FOUND and path.endswith("/status") and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                continue
            if answer.status >= http.client.MULTIPLE_CHOICES:
                raise PeerFailure(f"{method} {path} was answered with {answer.status}: {said[:500]!r}")
            return json.loads(said) if said else None


def _check(status: Any) -> None:
    for one in (status["connector"], *status["tasks"]):
        if one["state"] == "FAILED":
            raise PeerFailure(f"Debezium failed: {one.get('trace', '')[:1_000]}")


def connector_settings(database: Address, slot: str, publication: str, prefix: str, snapshot: str) -> Mapping[str, str]:
    """Return the settings of a connector for one table, whose topic is `<prefix>.public.<table>`."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public.orders",
        "snapshot.mode": snapshot,
        "decimal.handling.mode": "string",
        **TUNED,
    }


def _settings(address: Address, offsets: Path, kafka: Address) -> str:
    settings = {
        "bootstrap.servers": kafka,
        "listeners": f"http://{address}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": offsets,
        "offset.flush.interval.ms": 1_000,
        # The jars are on the class path already.
        "plugin.discovery": "service_load",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
