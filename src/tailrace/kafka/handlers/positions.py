"""Where to read: ListOffsets and OffsetForLeaderEpoch."""

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import Call, Route
from tailrace.kafka.handlers.fetch import isolation_of
from tailrace.model.errors import TailraceError, UnknownLeaderEpochError
from tailrace.model.fetch import Isolation, StartEdge
from tailrace.wire.batch import LEADER_EPOCH
from tailrace.wire.messages import list_offsets, offset_for_leader_epoch
from tailrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

_LATEST = -1
_EARLIEST = -2
_NEWEST = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
_NOWHERE = (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD)
"""About storage behind the server, which there is none of."""
_UNSUPPORTED_VERSION = 35


class PositionHandlers:
    def __init__(self, broker: Broker) -> None:
        self._positions = broker.positions

    def routes(self) -> list[Route]:
        return [
            Route(list_offsets.API, self.list_offsets),
            Route(offset_for_leader_epoch.API, self.for_leader_epoch),
        ]

    async def list_offsets(self, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
        isolation = isolation_of(request.isolation_level)
        return ListOffsetsResponse(
            topics=tuple(
                [
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=tuple([await self._look_up(topic.name, wanted, isolation) for wanted in topic.partitions]),
                    )
                    for topic in request.topics
                ]
            )
        )

    async def _look_up(self, topic: str, wanted: ListOffsetsPartition, isolation: Isolation) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        timestamp = wanted.timestamp
        if wanted.current_leader_epoch > LEADER_EPOCH:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=UnknownLeaderEpochError.kafka_code)
        try:
            bounds = self._positions.bounds(topic, index)
            if timestamp == _LATEST:
                return _at(index, await self._positions.resolve(topic, index, StartEdge.LATEST, isolation=isolation))
            if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
                return _at(index, bounds.start)
            if timestamp in _NOWHERE:
                return ListOffsetsPartitionResponse(partition_index=index)
            if timestamp < _EARLIEST_PENDING_UPLOAD:
                return ListOffsetsPartitionResponse(partition_index=index, error_code=_UNSUPPORTED_VERSION)
            if timestamp == _NEWEST:
                found = await self._positions.newest(topic, index)
            else:
                found = await self._positions.at_time(topic, index, timestamp, isolation=isolation)
        except TailraceError as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.kafka_code)
        if found is None:
            return ListOffsetsPartitionResponse(partition_index=index)
        return _at(index, found.offset, found.timestamp)

    def for_leader_epoch(self, call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=tuple(
                OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=tuple(self._epoch_end(topic.topic, wanted) for wanted in topic.partitions)
                )
                for topic in request.topics
            )
        )

    def _epoch_end(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        index = wanted.partition
        if wanted.current_leader_epoch > LEADER_EPOCH:
            return EpochEndOffset(partition=index, error_code=UnknownLeaderEpochError.kafka_code)
        try:
            end = self._positions.bounds(topic, index).end
        except TailraceError as error:
            return EpochEndOffset(partition=index, error_code=error.kafka_code)
        if wanted.leader_epoch != LEADER_EPOCH:
            return EpochEndOffset(partition=index)
        return EpochEndOffset(partition=index, leader_epoch=LEADER_EPOCH, end_offset=end)


def _at(index: int, offset: int, timestamp: int = -1) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=LEADER_EPOCH)
