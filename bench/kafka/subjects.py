"""Everything that is measured beside Kafka, by name."""

from collections.abc import Callable, Mapping

from bench.figures import Section
from bench.ground import Ground
from bench.kafka import footprint, throughput, waiting
from bench.peers.contract import MakePeer

BesideKafka = Callable[[Ground, MakePeer, MakePeer], Section]

KAFKA_SUBJECTS: Mapping[str, BesideKafka] = {
    "kafka": throughput.run_relaxed,
    "kafka-synced": throughput.run_synced,
    "kafka-waiting": waiting.run_relaxed,
    "kafka-waiting-synced": waiting.run_synced,
    "kafka-footprint": footprint.run,
}
