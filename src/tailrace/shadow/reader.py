"""Reads committed batches of many partitions of a cluster, from given positions on, into a queue of bounded size.

Each broker is fetched from by a task of its own, with a fetch session, so that partitions without new records are not even
named in a request. What happens to a partition is an event in the queue too: that offsets are gone, or the topic. A broker
that leads a partition no more is found out at the next `follow`.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.model.errors import TailraceError
from tailrace.model.limits import KIB, MIB
from tailrace.shadow.admin import Partition
from tailrace.shadow.cluster import KafkaCluster, TopicPlace
from tailrace.shadow.connection import BrokerConnection, Versions
from tailrace.shadow.failures import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    LEADER_MOVES,
    OFFSET_OUT_OF_RANGE,
    TOPIC_GONE,
    KafkaRefusalError,
    ShadowError,
)
from tailrace.shadow.fetched import FetchedBatch, committed_batches
from tailrace.wire.messages.fetch import (
    FETCH_API,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

_FETCH = Versions(FETCH_API, 11, 16)
_COMMITTED = 1
_QUEUED_BYTES = 32 * MIB
"""What is fetched and not taken yet. A response may go beyond it by its size."""
_RESPONSE_BYTES = 8 * MIB
_PARTITION_BYTES = 4 * MIB
_LEAST_BYTES = 64 * KIB
_WAIT_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
_THROTTLED_SECONDS = 0.5
_SESSION_LOST = {FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR}
_NO_SESSION = 0
_FULL_EPOCH = 0
_LAST_EPOCH = (1 << 31) - 1
_NOT_SENT = -1


class FetchedPart(NamedTuple):
    """What was fetched of a partition."""

    partition: Partition
    start: int
    """The position from which it was fetched. Records before it are in the first batch, if the batch begins before it."""
    position: int
    """The position behind it, which moves beyond aborted transactions too."""
    end: int
    """The end of committed records at that time."""
    batches: Sequence[FetchedBatch]
    size: int


class OffsetsGone(NamedTuple):
    """The position of a partition is not in the cluster. The partition is not read any more."""

    partition: Partition
    position: int


class TopicGone(NamedTuple):
    """A topic is not in the cluster any more, at least not with its id. It is not read any more."""

    topic: str


ReadEvent = FetchedPart | OffsetsGone | TopicGone


class _Reading:
    """A partition that is read."""

    __slots__ = ("is_stale", "leader", "position", "topic_id")

    def __init__(self, topic_id: UUID, leader: int, position: int) -> None:
        self.topic_id = topic_id
        self.leader = leader
        self.position = position
        self.is_stale = False
        """Whether the leader has said that it leads the partition no more."""


class ClusterReader:
    def __init__(self, cluster: KafkaCluster, *, queued_bytes: int = _QUEUED_BYTES, purpose: str = "fetch") -> None:
        self._cluster = cluster
        self._queue_bytes = queued_bytes
        self._purpose = purpose
        self._readings: dict[Partition, _Reading] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._queue: deque[ReadEvent] = deque()
        self._queued = 0
        self._is_filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._failure: ShadowError | None = None
        self._allowed_at = 0.0
        self.throttle_bytes: int | None = None
        """Bytes that are fetched in a second at most."""
        self.most_bytes = _RESPONSE_BYTES
        """Bytes of one fetch, unless it is of one batch."""
        self.is_stale = False
        """Whether a partition has another leader than is known, so that the topics should be looked up again."""

    def add(self, place: TopicPlace, number: int, position: int) -> None:
        """Read a partition from this position on."""
        self._readings[place.name, number] = _Reading(place.uuid, place.leaders[number], position)
        self._start()

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Stop to read partitions. What was fetched of them is forgotten."""
        removed = set(partitions)
        for partition in removed:
            self._readings.pop(partition, None)
        kept = [event for event in self._queue if isinstance(event, TopicGone) or event.partition not in removed]
        self._queue.clear()
        self._queued = 0
        for event in kept:
            self._put(event)

    def follow(self, places: Mapping[str, TopicPlace]) -> None:
        """Learn the leaders of partitions."""
        for (topic, number), reading in self._readings.items():
            place = places.get(topic)
            if place is not None and place.uuid == reading.topic_id and number < place.partitions:
                reading.leader = place.leaders[number]
                reading.is_stale = False
        self.is_stale = False
        self._start()

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._readings

    async def take(self, seconds: float | None) -> ReadEvent | None:
        """Return the next event, or `None` if there is none within this time. Raises `ShadowError` if reading has failed."""
        if not self._queue and self._failure is None:
            self._is_filled.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._is_filled.wait()
            except TimeoutError:
                return None
        if self._failure is not None:
            raise self._failure
        return self._pop()

    def take_part(self) -> FetchedPart | None:
        """Return the next event if it is there and is a part that was fetched."""
        if not self._queue or not isinstance(self._queue[0], FetchedPart):
            return None
        event = self._pop()
        return event if isinstance(event, FetchedPart) else None

    def _pop(self) -> ReadEvent:
        event = self._queue.popleft()
        if isinstance(event, FetchedPart):
            self._queued -= event.size
            if self._queued < self._queue_bytes:
                self._has_room.set()
        return event

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self) -> None:
        """Have a task for each broker that leads something."""
        for leader in {reading.leader for reading in self._readings.values()} - self._tasks.keys():
            if leader >= 0:
                self._tasks[leader] = asyncio.create_task(self._fetch_from(leader))

    async def _fetch_from(self, leader: int) -> None:
        try:
            await self._fetch_forever(leader)
        except ShadowError as error:
            self._fail(error)
        except TailraceError as error:
            self._fail(ShadowError(f"{self._cluster.what} sent what can't be read: {error}", "See the log of the broker"))

    def _fail(self, error: ShadowError) -> None:
        self._failure = self._failure or error
        self._is_filled.set()

    async def _fetch_forever(self, leader: int) -> None:
        session = _FetchSession()
        while True:
            await self._has_room.wait()
            await self._await_turn()
            wanted = {
                partition: reading
                for partition, reading in self._readings.items()
                if reading.leader == leader and not reading.is_stale
            }
            if not wanted:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            connection = await self._cluster.broker(leader, self._purpose)
            response = await self._fetch(connection, session, wanted)
            if response is not None and self._take_in(response, wanted, session):
                # A leader that has moved answers at once.
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _fetch(
        self, connection: BrokerConnection, session: "_FetchSession", wanted: Mapping[Partition, _Reading]
    ) -> FetchResponse | None:
        most = min(_RESPONSE_BYTES, self.most_bytes, self.throttle_bytes or _RESPONSE_BYTES)
        request = session.request(connection, wanted, max(_LEAST_BYTES, most))
        response = await connection.ask(_FETCH, request, FetchResponse, seconds=_WAIT_SECONDS)
        if response.error_code in _SESSION_LOST:
            session.reset()
            return None
        if response.error_code:
            raise KafkaRefusalError(response.error_code, f"{self._cluster.what} does not answer fetches")
        session.answered(response.session_id)
        return response

    def _take_in(self, response: FetchResponse, wanted: Mapping[Partition, _Reading], session: "_FetchSession") -> bool:
        """Put what was fetched into the queue. Return whether a partition had an error."""
        names = {reading.topic_id: topic for (topic, _), reading in wanted.items()}
        has_errors = False
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = name, data.partition_index
                reading = wanted.get(partition)
                if reading is None or self._readings.get(partition) is not reading:
                    continue
                if data.error_code:
                    has_errors = True
                    session.forget(partition)
                    self._refused(partition, reading, data.error_code)
                else:
                    self._received(partition, reading, data)
        return has_errors

    def _received(self, partition: Partition, reading: _Reading, data: FetchPartitionData) -> None:
        start = reading.position
        try:
            found = committed_batches(data.records, start, data.aborted_transactions)
        except TailraceError as error:
            topic, number = partition
            raise ShadowError(
                f"partition {number} of topic {topic!r} can't be read from {self._cluster.what}: {error}",
                "See the log of the broker",
            ) from error
        end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        reading.position = found.position
        self._allowed_at += found.size / self.throttle_bytes if self.throttle_bytes else 0.0
        self._put(FetchedPart(partition, start, found.position, max(end, found.position), found.batches, found.size))

    def _refused(self, partition: Partition, reading: _Reading, code: int) -> None:
        topic, number = partition
        if code == OFFSET_OUT_OF_RANGE:
            del self._readings[partition]
            self._put(OffsetsGone(partition, reading.position))
        elif code in TOPIC_GONE:
            for other in [each for each in self._readings if each[0] == topic]:
                del self._readings[other]
            self._put(TopicGone(topic))
        elif code in LEADER_MOVES:
            reading.is_stale = True
            self.is_stale = True
        else:
            raise KafkaRefusalError(code, f"partition {number} of topic {topic!r} can't be read from {self._cluster.what}")

    def _put(self, event: ReadEvent) -> None:
        self._queue.append(event)
        self._is_filled.set()
        if isinstance(event, FetchedPart):
            self._queued += event.size
        if self._queued >= self._queue_bytes:
            self._has_room.clear()
        else:
            self._has_room.set()

    async def _await_turn(self) -> None:
        """Wait until the throttle lets more be fetched. It may change meanwhile."""
        now = asyncio.get_running_loop().time
        while self.throttle_bytes is not None and self._allowed_at > now():  # noqa: ASYNC110
            await asyncio.sleep(min(_THROTTLED_SECONDS, self._allowed_at - now()))
        self._allowed_at = max(self._allowed_at, now()) if self.throttle_bytes is not None else 0.0


class _FetchSession:
    """What a broker knows of what is wanted from it (KIP-227)."""

    def __init__(self) -> None:
        self._connection: BrokerConnection | None = None
        self._turn = 0
        self.reset()

    def reset(self) -> None:
        self._number = _NO_SESSION
        self._epoch = _FULL_EPOCH
        self._sent: dict[Partition, tuple[UUID, int]] = {}
        """The topic and the position that were sent last."""

    def forget(self, partition: Partition) -> None:
        """Name the partition in the next request, whatever the broker knows."""
        if partition in self._sent:
            self._sent[partition] = self._sent[partition][0], _NOT_SENT

    def answered(self, number: int) -> None:
        if number == _NO_SESSION:
            # The broker has no room for another session.
            self.reset()
        elif number == self._number:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        else:
            self._number, self._epoch = number, 1

    def request(self, connection: BrokerConnection, wanted: Mapping[Partition, _Reading], most_bytes: int) -> FetchRequest:
        """Return a request for what has changed, or for everything if there is no session."""
        if connection is not self._connection:
            self._connection = connection
            self.reset()
        order = list(wanted.items())
        if self._number == _NO_SESSION:
            # The first partitions are served first, so each has its turn.
            self._turn = (self._turn + 1) % len(order)
            order = order[self._turn :] + order[: self._turn]
        news: dict[tuple[str, UUID], list[FetchPartition]] = defaultdict(list)
        before, self._sent = self._sent, {}
        for partition, reading in order:
            place = self._sent[partition] = reading.topic_id, reading.position
            if before.get(partition) != place:
                news[partition[0], reading.topic_id].append(
                    FetchPartition(
                        partition=partition[1],
                        fetch_offset=reading.position,
                        partition_max_bytes=min(_PARTITION_BYTES, most_bytes),
                    )
                )
        gone = [
            ForgottenTopic(topic=topic, topic_id=topic_id, partitions=(number,))
            for (topic, number), (topic_id, _) in before.items()
            if self._sent.get((topic, number), (None,))[0] != topic_id
        ]
        return FetchRequest(
            max_wait_ms=round(_WAIT_SECONDS * 1000),
            min_bytes=1,
            max_bytes=most_bytes,
            isolation_level=_COMMITTED,
            session_id=self._number,
            session_epoch=self._epoch,
            topics=tuple(
                FetchTopic(topic=topic, topic_id=topic_id, partitions=tuple(partitions))
                for (topic, topic_id), partitions in news.items()
            ),
            forgotten_topics_data=tuple(gone),
        )
