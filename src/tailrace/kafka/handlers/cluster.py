"""Who there is to talk to: DescribeCluster and FindCoordinator. It is always this one server."""

from tailrace.kafka.cluster import CLUSTER_OPERATIONS, NODE_ID, NOT_ASKED, Cluster
from tailrace.kafka.dispatch import Call, Route
from tailrace.wire.messages import describe_cluster, find_coordinator
from tailrace.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from tailrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP = 0
_TRANSACTION = 1
_INVALID_REQUEST = 42


class ClusterHandlers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def routes(self) -> list[Route]:
        return [
            Route(describe_cluster.API, self.describe),
            Route(find_coordinator.API, self.find_coordinator),
        ]

    def describe(self, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
        host, port = self._cluster.address
        return DescribeClusterResponse(
            endpoint_type=request.endpoint_type,
            cluster_id=self._cluster.cluster_id,
            controller_id=NODE_ID,
            brokers=(DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port),),
            cluster_authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED,
        )

    def find_coordinator(self, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        host, port = self._cluster.address
        if request.key_type not in (_GROUP, _TRANSACTION):
            problem = f"key type {request.key_type} is neither a group ({_GROUP}) nor a transaction ({_TRANSACTION})"
            refused = tuple(
                Coordinator(key=key, node_id=-1, host="", port=-1, error_code=_INVALID_REQUEST, error_message=problem)
                for key in request.coordinator_keys
            )
            return FindCoordinatorResponse(
                error_code=_INVALID_REQUEST, error_message=problem, node_id=-1, host="", port=-1, coordinators=refused
            )
        return FindCoordinatorResponse(
            error_message=None,
            node_id=NODE_ID,
            host=host,
            port=port,
            coordinators=tuple(
                Coordinator(key=key, node_id=NODE_ID, host=host, port=port, error_message=None)
                for key in request.coordinator_keys
            ),
        )
