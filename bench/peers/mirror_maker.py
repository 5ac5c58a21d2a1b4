"""MirrorMaker 2 with exactly once: its source connector in a distributed worker of Connect that stays warm from round to round.

The worker belongs to the target, as its documentation advises. What is set beyond what a connector needs is in `TUNED` and is
told on the page.
"""

from collections.abc import Mapping
from pathlib import Path

from bench.peers.connect import ConnectPeer
from bench.peers.kafka import KAFKA, jars_of, require_program
from tailrace.model.address import Address

NAME = f"MirrorMaker 2, Kafka {KAFKA}"

TUNED: Mapping[str, str] = {
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "1000",
    "source.consumer.max.poll.records": "10000",
    "source.consumer.fetch.max.bytes": "52428800",
    "source.consumer.max.partition.fetch.bytes": "4194304",
    "source.consumer.receive.buffer.bytes": "-1",
    "producer.override.batch.size": "1000000",
    "producer.override.buffer.memory": "134217728",
    "producer.override.linger.ms": "5",
    "producer.override.max.request.size": "8388608",
}
"""Settings that differ from the defaults for speed. With the default boundary each poll of 500 records is a transaction, which
makes it several times slower."""
PROMPT: Mapping[str, str] = {"transaction.boundary": "poll", "producer.override.linger.ms": "0"}
"""Settings for records that are waited for."""

_POM = Path(__file__).resolve().parents[2] / "tests" / "compat" / "tools" / "pom.xml"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def mirror_maker_jars(cache: Path) -> Path:
    """Return a folder with all jars of Connect and of MirrorMaker."""
    require_program("java")
    return jars_of(_POM, {"kafka.version": KAFKA}, cache / f"mirror-maker-{KAFKA}", NAME)


def mirror_maker_worker(jars: Path, folder: Path, target: Address) -> ConnectPeer:
    settings = {
        "bootstrap.servers": target,
        "group.id": "mirror",
        "exactly.once.source.support": "enabled",
        "offset.storage.topic": "mirror-offsets",
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 1,
        "config.storage.topic": "mirror-configs",
        "config.storage.replication.factor": 1,
        "status.storage.topic": "mirror-status",
        "status.storage.replication.factor": 1,
        "status.storage.partitions": 1,
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "scheduled.rebalance.max.delay.ms": 0,
    }
    return ConnectPeer("ConnectDistributed", [jars], folder, settings)


def connector_settings(
    topic: str, origin: Address, target: Address, alias: str, tasks: int, tuned: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the settings of a connector for one topic, which becomes `<alias>.<topic>` in the target."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": str(tasks),
        "source.cluster.alias": alias,
        "target.cluster.alias": "target",
        "source.cluster.bootstrap.servers": str(origin),
        "target.cluster.bootstrap.servers": str(target),
        "topics": topic,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset-syncs.topic.location": "target",
        "exactly.once.support": "required",
        "source.consumer.isolation.level": "read_committed",
        "source.consumer.auto.offset.reset": "earliest",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "600",
        **tuned,
    }
