"""What Kafka's clients see of the server: a cluster of one broker, which leads every partition and coordinates every group."""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tailrace.model.address import Address
from tailrace.model.commit import Durability
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

MOST_TELEMETRY_SECONDS = 3_600
"""The longest interval between two pushes, as in Kafka."""
NODE_ID = 0
REPLICAS = (NODE_ID,)
LOG_DIR = "log"
"""The name of the only directory of logs, within the data folder."""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    1 << code for code in range(3, 13)
)
"""Kafka's ACL operations, as bits."""
_CONFIGS = DESCRIBE_CONFIGS | ALTER_CONFIGS
TOPIC_OPERATIONS = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | _CONFIGS
GROUP_OPERATIONS = READ | DELETE | DESCRIBE | _CONFIGS
CLUSTER_OPERATIONS = CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | _CONFIGS | IDEMPOTENT_WRITE
"""All operations of each kind of resource. `access.py` says which of them a client may do."""
NOT_ASKED = -(1 << 31)
"""Returned instead of operations if the client did not ask for them."""


class Cluster(NamedTuple):
    cluster_id: str
    address: Address
    """The address that clients are told to connect to."""
    durability: Durability = "fsync"


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    auto_create_topics: bool = True
    """Create a topic when a client asks for one that does not exist, as Kafka does by default."""
    default_partitions: int = 1
    """Partitions of topics that are created without a number of partitions."""
    client_telemetry: bool = False
    """Take the metrics that clients push (KIP-714), and show them with those of the server."""
    telemetry_interval_seconds: int = 60
    """How often clients push their metrics, at most `MOST_TELEMETRY_SECONDS`."""


class Node(NamedTuple):
    """The one node of the cluster, for handlers that answer for the server as a whole."""

    broker: "Broker"
    cluster: Cluster
    settings: KafkaSettings
    limits: Limits
