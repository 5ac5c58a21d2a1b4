"""DescribeLogDirs: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int16, Int32, Int64, Message, NullableSince, Since, String


class DescribableLogDirTopic(Message, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(Message, frozen=True, kw_only=True):
    topics: Annotated[tuple[DescribableLogDirTopic, ...] | None, NullableSince(0)] = ()


class DescribeLogDirsPartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Boolean = False


class DescribeLogDirsTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1
    is_cordoned: Annotated[Boolean, Since(5)] = False


class DescribeLogDirsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()


API = Api(35, "DescribeLogDirs", 1, 5, 2, DescribeLogDirsRequest, DescribeLogDirsResponse)
