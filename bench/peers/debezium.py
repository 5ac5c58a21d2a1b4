"""Debezium's connector for PostgreSQL in Kafka Connect, standalone: one process, which writes to a Kafka on the same machine.

The connector is controlled over Connect's HTTP interface, so that the process stays warm from round to round. Records are JSON
without schemas. What is set beyond what a connector needs is in `TUNED` and is told on the page.
"""

from collections.abc import Mapping
from pathlib import Path

from bench.peers.connect import ConnectPeer
from bench.peers.kafka import KAFKA, jars_of, require_program
from tailrace.model.address import Address

DEBEZIUM = "3.6.1.Final"
"""The newest release of which Maven Central has all parts (2026-11)."""
NAME = f"Debezium {DEBEZIUM.removesuffix('.Final')}, Kafka {KAFKA}"

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


def debezium_jars(cache: Path) -> Path:
    """Return a folder with all jars of Connect and of the connector."""
    require_program("java")
    versions = {"kafka.version": KAFKA, "debezium.version": DEBEZIUM}
    return jars_of(_POM, versions, cache / f"debezium-{DEBEZIUM}-{KAFKA}", f"Debezium {DEBEZIUM}")


def debezium_peer(jars: Path, folder: Path, kafka: Address) -> ConnectPeer:
    """Return a Connect that keeps its positions in a file."""
    settings = {"bootstrap.servers": kafka, "offset.storage.file.filename": folder / "offsets"}
    return ConnectPeer("ConnectStandalone", [jars], folder, settings)


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
