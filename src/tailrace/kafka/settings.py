"""How the Kafka listener behaves where Kafka lets its operators choose."""

import msgspec


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    auto_create_topics: bool = True
    """Make a topic when a client asks for one that is not there, as Kafka does by default."""
    default_partitions: int = 1
    """Partitions of topics that are made without saying how many."""
