"""How the server presents itself: a cluster of one broker, which leads every partition and coordinates every group."""

from typing import NamedTuple

from tailrace.model.address import Address

NODE_ID = 0
REPLICAS = (NODE_ID,)


class Cluster(NamedTuple):
    cluster_id: str
    address: Address
    """Where clients are told to connect."""
