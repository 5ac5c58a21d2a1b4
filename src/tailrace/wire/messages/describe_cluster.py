"""DescribeCluster: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int8, Int16, Int32, Message, NullableSince, Since, String


class DescribeClusterRequest(Message, frozen=True, kw_only=True):
    include_cluster_authorized_operations: Boolean = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Boolean, Since(2)] = False


class DescribeClusterBroker(Message, frozen=True, kw_only=True):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, NullableSince(0)] = None
    is_fenced: Annotated[Boolean, Since(2)] = False


class DescribeClusterResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -2147483648


API = Api(60, "DescribeCluster", 0, 2, 0, DescribeClusterRequest, DescribeClusterResponse)
