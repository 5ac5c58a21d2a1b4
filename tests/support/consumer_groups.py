"""Groups of the consumer protocol for tests: topics without a store, heartbeats, and members that obey."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from uuid import UUID

from tailrace.broker.groups.assignment import together
from tailrace.broker.groups.consumer_group import ConsumerGroup, decode_record, encode_record
from tailrace.broker.groups.subscribed_topics import PatternMatches, SubscribedTopics
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.consumer_group import ConsumerHeartbeat, ConsumerHeartbeatResult
from tailrace.model.errors import TailraceError
from tailrace.model.ids import TopicId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.topic import Topic, TopicSettings
from tests.support.clocks import ManualClock

SESSION_MS = DEFAULT_LIMITS.group_consumer_session_timeout_ms
REBALANCE_MS = 20_000

Partitions = Mapping[UUID, frozenset[int]]


class TopicsUnderTest(SubscribedTopics):
    """Topics that a test makes, extends and deletes. A pattern is a set of names with `|` in between."""

    def __init__(self) -> None:
        self._lives: dict[str, LiveTopic] = {}
        self._ids = count(1)
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    def make(self, name: str, partitions: int) -> UUID:
        number = next(self._ids)
        return self._put(TopicId(number), UUID(int=number), name, partitions)

    def extend(self, name: str, partitions: int) -> None:
        topic = self._lives[name].topic
        self._put(topic.id, topic.uuid, name, partitions)

    def delete(self, name: str) -> None:
        del self._lives[name]
        self._version += 1

    def find(self, name: str) -> LiveTopic | None:
        return self._lives.get(name)

    def find_by_uuid(self, uuid: UUID) -> LiveTopic | None:
        return next((live for live in self._lives.values() if live.topic.uuid == uuid), None)

    def matches(self, pattern: str) -> frozenset[UUID]:
        return frozenset(live.topic.uuid for name in pattern.split("|") if (live := self.find(name)) is not None)

    def partitions(self, *names: str) -> set[tuple[UUID, int]]:
        lives = (self.find(name) for name in names)
        return {(live.topic.uuid, number) for live in lives if live is not None for number in range(len(live.partitions))}

    def _put(self, topic_id: TopicId, uuid: UUID, name: str, partitions: int) -> UUID:
        topic = Topic(
            id=topic_id, uuid=uuid, name=name, alias=None, partitions=partitions, settings=TopicSettings(), created_ms=0
        )
        self._lives[name] = LiveTopic(topic, DEFAULT_LIMITS)
        self._version += 1
        return uuid


class ConsumerGroupUnderTest:
    """A group with member ids `m1`, `m2`, ... where all that is answered is durable before."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.clock = ManualClock()
        self.topics = TopicsUnderTest()
        self._ids = count(1)
        self._limits = limits
        self.group = self._new_group()
        self.durable: bytes | None = None

    def send(
        self,
        member_id: str,
        epoch: int,
        *,
        names: tuple[str, ...] | None = None,
        pattern: str | None = None,
        owned: Partitions | None = None,
        instance: str | None = None,
        rebalance_ms: int | None = None,
        assignor: str | None = None,
        is_stored: bool = True,
    ) -> ConsumerHeartbeatResult:
        """Send a heartbeat, and store what it changed."""
        request = ConsumerHeartbeat(
            "g", member_id, epoch, "client", "/192.0.2.1", instance, None, rebalance_ms, names, pattern, assignor, owned
        )
        if epoch < 0:
            result = self.group.leave(request)
        else:
            result = self.group.heartbeat(request, self.topics.version, self._matches(pattern))
        if is_stored:
            self.store()
        return result

    def join(
        self,
        member_id: str = "",
        *names: str,
        pattern: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
        is_stored: bool = True,
    ) -> ConsumerHeartbeatResult:
        wanted = names or (("t",) if pattern is None else None)
        return self.send(
            member_id,
            0,
            names=wanted,
            pattern=pattern,
            owned={},
            instance=instance,
            assignor=assignor,
            rebalance_ms=rebalance_ms,
            is_stored=is_stored,
        )

    def advance(self, milliseconds: int) -> None:
        """Advance the clock, and tick the group at each time that it asks for."""
        until = self.clock.monotonic() * 1000 + milliseconds
        while (due := self.group.next_due_ms()) is not None and due <= until:
            self.clock.advance(max(0, due - round(self.clock.monotonic() * 1000)))
            self.group.tick()
            self.store()
        self.clock.advance(round(until - self.clock.monotonic() * 1000))

    def store(self) -> None:
        self.durable = encode_record(self.group.record())

    def restart(self) -> None:
        """Kill and restart the server. What was not stored is lost."""
        self.group = self._new_group()
        record = None if self.durable is None else decode_record(self.durable)
        if record is not None:
            self.group.restore(record)

    def _matches(self, pattern: str | None) -> PatternMatches:
        patterns = self.group.patterns | ({pattern} if pattern else set())
        return {each: self.topics.matches(each) for each in patterns}

    def _new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", self.topics, self.clock, self._limits, lambda: f"m{next(self._ids)}")


class ObedientConsumer:
    """A member as a client has it: it reads at once what it is assigned, and takes its time to give up what it is not."""

    def __init__(self, it: ConsumerGroupUnderTest, member_id: str, *names: str, instance: str | None = None) -> None:
        self._it = it
        self.member_id = member_id
        self.instance = instance
        self.names = names
        self.epoch = 0
        self.reading: Partitions = {}
        self._assigned: Partitions = {}
        self._is_complete = True
        """Whether the next heartbeat says all that it can."""

    @property
    def partitions(self) -> set[tuple[UUID, int]]:
        """What it may read."""
        return {(topic, number) for topic, numbers in self.reading.items() for number in numbers}

    def heartbeat(self, *, is_answered: bool = True, is_stored: bool = True) -> None:
        """Send a heartbeat. The answer may be lost, and so may what it changed, if the server dies."""
        try:
            result = self._it.send(
                self.member_id,
                self.epoch,
                names=self.names if self._is_complete else None,
                owned=self.reading if self._is_complete else None,
                instance=self.instance,
                rebalance_ms=REBALANCE_MS if self._is_complete else None,
                is_stored=is_stored,
            )
        except TailraceError:
            self.start_over()
            return
        if not is_answered:
            # A client that lost an answer says everything again.
            self._is_complete = True
            return
        assert result.epoch >= self.epoch, "a member's epoch went back"
        self.epoch = result.epoch
        self._is_complete = False
        if result.assigned is not None and dict(result.assigned) != dict(self._assigned):
            self._assigned = result.assigned
            self.reading = together(self.reading, result.assigned)
            self._is_complete = True

    def give_up(self) -> None:
        """Stop to read what is not assigned any more, and say so with the next heartbeat."""
        if dict(self.reading) != dict(self._assigned):
            self.reading = self._assigned
            self._is_complete = True

    def subscribe(self, *names: str) -> None:
        self.names = names
        self._is_complete = True

    def leave(self) -> None:
        self._it.send(self.member_id, -1, instance=self.instance)

    def restart(self, member_id: str) -> None:
        """Leave for a moment, as a static member, and come back as another client."""
        # It may have been removed before.
        with suppress(TailraceError):
            self._it.send(self.member_id, -2, instance=self.instance)
        self.member_id = member_id
        self.start_over()

    def start_over(self) -> None:
        """Give up everything and join again."""
        self.epoch = 0
        self.reading = self._assigned = {}
        self._is_complete = True
