"""The one node of the cluster, as the handlers see it that answer for the server as a whole."""

from typing import NamedTuple

from tailrace.broker.broker import Broker
from tailrace.kafka.cluster import Cluster
from tailrace.kafka.settings import KafkaSettings
from tailrace.model.limits import Limits


class Node(NamedTuple):
    broker: Broker
    cluster: Cluster
    settings: KafkaSettings
    limits: Limits
