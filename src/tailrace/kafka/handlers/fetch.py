"""Fetch, ListOffsets and OffsetForLeaderEpoch. A fetch returns stored batches as they are."""

from collections.abc import Sequence
from itertools import groupby

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.consume import TimedOffset
from tailrace.kafka.access import Access
from tailrace.kafka.dispatch import ApiRoute, EncodedResponse, RequestContext
from tailrace.kafka.fetch_sessions import FetchSessions, WantedPartition
from tailrace.model.errors import (
    OffsetOutOfRangeError,
    TailraceError,
    UnknownLeaderEpochError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tailrace.model.fetch import NO_BOUNDS, Isolation, PartitionBatches, PartitionFetch, StartEdge
from tailrace.model.ids import Offset
from tailrace.model.names import TopicPattern
from tailrace.wire.batch import LEADER_EPOCH
from tailrace.wire.fast_fetch import IDS_SINCE, SESSIONS_SINCE, FetchedPartition, FetchedTopic, write_fetch_response
from tailrace.wire.messages.fetch import (
    FETCH_API,
    LIST_OFFSETS_API,
    OFFSET_FOR_LEADER_EPOCH_API,
    EpochEndOffset,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
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
_TIERED = (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD)
"""Questions about tiered storage, which the server does not have."""
_UNSUPPORTED_VERSION = 35


class FetchHandlers:
    def __init__(self, broker: Broker, sessions: FetchSessions) -> None:
        self._broker = broker
        self._sessions = sessions
        self._access = Access(broker)

    def routes(self) -> list[ApiRoute]:
        return [ApiRoute(FETCH_API, self.fetch)]

    async def fetch(self, context: RequestContext, request: FetchRequest) -> EncodedResponse:
        try:
            fetching = self._sessions.begin(request, by_id=context.version >= IDS_SINCE)
        except TailraceError as error:
            if context.version < SESSIONS_SINCE:
                raise
            return EncodedResponse(write_fetch_response(context.version, (), error.kafka_code))
        isolation = isolation_of(request.isolation_level)
        held = self._broker.answers.answer()
        with held.until_sent():
            answers = await self._read(fetching.wanted, request, isolation, held)
        fetched = [
            (wanted, _fetched(wanted, answer, isolation)) for wanted, answer in zip(fetching.wanted, answers, strict=True)
        ]
        session = fetching.session
        if session is not None:
            news = list(session.update(fetched))
            if fetching.is_incremental:
                fetched = [fetched[place] for place in news]
        topics = [
            FetchedTopic(name, topic_id, [partition for _, partition in group])
            for (name, topic_id), group in groupby(fetched, lambda pair: pair[0].key[:2])
        ]
        return EncodedResponse(
            write_fetch_response(context.version, topics, 0, fetching.session_id), held if held.used else None
        )

    async def _read(
        self, wanted: Sequence[WantedPartition], request: FetchRequest, isolation: Isolation, held: ReadAnswer
    ) -> list[PartitionBatches]:
        asked = [self._resolve(partition) for partition in wanted]
        known = [each for each in asked if isinstance(each, PartitionFetch)]
        may_wait = known and len(known) == len(asked)
        try:
            found = await self._broker.fetcher.fetch(
                known,
                min_bytes=max(0, request.min_bytes),
                max_bytes=max(0, request.max_bytes),
                max_wait_ms=max(0, request.max_wait_ms) if may_wait else 0,
                isolation=isolation,
                answer=held,
            )
        except TailraceError as error:
            found = [PartitionBatches(each.topic, each.partition, (), NO_BOUNDS, error) for each in known]
        answers = iter(found)
        return [next(answers) if isinstance(each, PartitionFetch) else each for each in asked]

    def _resolve(self, wanted: WantedPartition) -> PartitionFetch | PartitionBatches:
        name, topic_id, number = wanted.key
        try:
            if wanted.leader_epoch > LEADER_EPOCH:
                raise UnknownLeaderEpochError(f"leader epoch {wanted.leader_epoch} is unknown; refresh the metadata")
            topics = self._broker.topics
            topic = topics.readable(name).topic if name else topics.readable_by_uuid(topic_id).topic
            if not wanted.is_same(topic.uuid):
                # Clients without topic ids understand this error: it makes them reset their position.
                raise OffsetOutOfRangeError(
                    f"topic {name!r} was deleted and created again; offset {wanted.offset} belongs to the deleted topic",
                    *NO_BOUNDS,
                )
            name = topic.name
        except TailraceError as error:
            problem = self._access.hides(error, "consume", name) if name else error
            return PartitionBatches(name, number, (), NO_BOUNDS, problem)
        return PartitionFetch(name, number, Offset(wanted.offset), max(0, wanted.max_bytes))


def isolation_of(level: int) -> Isolation:
    return Isolation.READ_COMMITTED if level == Isolation.READ_COMMITTED else Isolation.READ_UNCOMMITTED


def _fetched(wanted: WantedPartition, answer: PartitionBatches, isolation: Isolation) -> FetchedPartition:
    start, end = answer.bounds
    code = 0 if answer.error is None else answer.error.kafka_code
    if wanted.key[0] and isinstance(answer.error, UnknownTopicIdError):
        # A client that asks by name may not know this error.
        code = UnknownTopicError.kafka_code
    aborted = answer.aborted if isolation is Isolation.READ_COMMITTED else None
    return FetchedPartition(wanted.key[2], code, end, answer.last_stable_offset, start, answer.batches, aborted)


class ListOffsetsHandlers:
    def __init__(self, broker: Broker) -> None:
        self._positions = broker.positions
        self._topics = broker.topics
        self._patterns = broker.pattern_positions

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(LIST_OFFSETS_API, self.list_offsets),
            ApiRoute(OFFSET_FOR_LEADER_EPOCH_API, self.for_leader_epoch),
        ]

    async def list_offsets(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
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
            self._topics.require("describe", topic)
            pattern = self._pattern(topic, index)
            if pattern is not None:
                return await self._look_up_in(pattern, wanted)
            bounds = self._positions.bounds(topic, index)
            if timestamp == _LATEST:
                return _at(index, await self._positions.resolve(topic, index, StartEdge.LATEST, isolation=isolation))
            if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
                return _at(index, bounds.start)
            if timestamp in _TIERED or timestamp < _EARLIEST_PENDING_UPLOAD:
                return _unanswered(index, timestamp)
            if timestamp == _NEWEST:
                found = await self._positions.newest(topic, index)
            else:
                found = await self._positions.at_time(topic, index, timestamp, isolation=isolation)
        except TailraceError as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.kafka_code)
        return _found(index, found)

    def _pattern(self, topic: str, index: int) -> TopicPattern | None:
        """Return the pattern that the client reads as a topic, if it is one. Raises `UnknownPartitionError`."""
        live = None if self._topics.find(topic) else self._topics.patterns.find(topic)
        if live is None:
            return None
        live.partition(index)
        return live.pattern

    async def _look_up_in(self, pattern: TopicPattern, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """Look up a cursor. It is the same in all partitions of a pattern, at whatever isolation level."""
        index = wanted.partition_index
        timestamp = wanted.timestamp
        if timestamp == _LATEST:
            return _at(index, await self._patterns.latest(pattern))
        if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            return _at(index, await self._patterns.earliest(pattern))
        if timestamp in _TIERED or timestamp < _EARLIEST_PENDING_UPLOAD:
            return _unanswered(index, timestamp)
        at_newest = timestamp == _NEWEST
        return _found(
            index, await (self._patterns.newest(pattern) if at_newest else self._patterns.at_time(pattern, timestamp))
        )

    def for_leader_epoch(self, context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
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
            self._topics.require("describe", topic)
            pattern = self._pattern(topic, index)
            end = self._positions.bounds(topic, index).end if pattern is None else self._patterns.log_end
        except TailraceError as error:
            return EpochEndOffset(partition=index, error_code=error.kafka_code)
        if wanted.leader_epoch != LEADER_EPOCH:
            return EpochEndOffset(partition=index)
        return EpochEndOffset(partition=index, leader_epoch=LEADER_EPOCH, end_offset=end)


def _at(index: int, offset: int, timestamp: int = -1) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=LEADER_EPOCH)


def _found(index: int, found: TimedOffset | None) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index) if found is None else _at(index, found.offset, found.timestamp)


def _unanswered(index: int, timestamp: int) -> ListOffsetsPartitionResponse:
    """Answer a question about tiered storage, which has no offsets, or one that is unknown."""
    return ListOffsetsPartitionResponse(partition_index=index, error_code=0 if timestamp in _TIERED else _UNSUPPORTED_VERSION)
