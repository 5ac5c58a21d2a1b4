"""The SDK for threads: publish in batches, consume by polls, subscribe to a pattern, acknowledge events of a queue."""

import statistics
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from bench.client.worker import Acknowledge, AnyTask, Consume, Follow, Publish, SdkProcess
from bench.figures import Bar, Figure, Samples, Section, take_turns
from bench.http.server import HttpServer, serving
from bench.workspace import Workspace, settle_disk

_MESSAGE_BYTES = 200
_POLLED = 1_000
_TOPICS = 1_000
_LEAST_PUBLISHED = 50_000
_LEAST_CONSUMED = 100_000
_LEAST_ACKS = 10_000
_MOST_FOR_A_PATTERN = 2
"""A multiple of the cost of reading one topic."""


class _Cost(NamedTuple):
    per_second: float
    client_microseconds: float
    """CPU time for each message."""
    server_microseconds: float

    @property
    def microseconds(self) -> float:
        return self.client_microseconds + self.server_microseconds


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.http
    with serving(workspace) as server, SdkProcess(server) as sdk:
        one = _OneTopic(server, sdk)
        workspace.say("publish, consume and acknowledge with the SDK")
        sides: dict[str, Callable[[int], _Cost]] = {"publish": one.publish, "consume": one.consume, "ack": one.acknowledge}
        found = take_turns(sides, scale.messages, scale.rounds)
    with serving(workspace) as server, SdkProcess(server) as sdk:
        topics = min(_TOPICS, scale.messages // 10)
        workspace.say(f"follow {topics:,} topics with the SDK")
        many = _ManyTopics(server, sdk, topics, scale.messages)
        followed = take_turns({"pattern": many.follow_all, "topic": many.follow_one}, scale.messages, scale.rounds)
    return Section(
        title="Python SDK",
        text=f"One process with the SDK, without asyncio, and messages of {_MESSAGE_BYTES} B. It publishes by `send` and one"
        f" `flush`, with syncs; consumes in polls of {_POLLED:,} and marks each record; takes events from a queue, {_POLLED:,}"
        f" at a time, and acknowledges each by itself. Then it follows {topics:,} topics by a pattern, of messages that were"
        " published to all of them in turn, and as many messages of one of these topics. Every message has a number, and each"
        " number must come once.",
        figures=[
            Figure(name="publish", ours=_rates(found["publish"]), unit="messages/s", bar=Bar("at least", _LEAST_PUBLISHED)),
            Figure(name="consume", ours=_rates(found["consume"]), unit="messages/s", bar=Bar("at least", _LEAST_CONSUMED)),
            Figure(name="acks of a queue", ours=_rates(found["ack"]), unit="acks/s", bar=Bar("at least", _LEAST_ACKS)),
            Figure(
                name=f"follow {topics:,} topics, CPU a message",
                ours=_costs(followed["pattern"]),
                unit="µs",
                peer="one topic",
                peers=_costs(followed["topic"]),
                bar=Bar("at most", _MOST_FOR_A_PATTERN),
            ),
        ],
        remarks=[_shares(name, costs) for name, costs in {**found, **followed}.items()],
    )


class _OneTopic:
    """Publishes to a new topic in each round, consumes it, and reads it as a queue."""

    def __init__(self, server: HttpServer, sdk: SdkProcess) -> None:
        self._server = server
        self._sdk = sdk
        self._numbers = count()
        self._topics: dict[int, str] = {}
        """The newest topic of each number of messages."""

    def publish(self, messages: int) -> _Cost:
        topic = self._topics[messages] = f"bench.sdk_{next(self._numbers)}"
        self._server.create_topic(topic)
        settle_disk()
        return self._cost(Publish(topics=[topic], messages=messages, message_bytes=_MESSAGE_BYTES), messages)

    def consume(self, messages: int) -> _Cost:
        return self._cost(Consume(topic=self._topic(messages), messages=messages, polled=_POLLED), messages)

    def acknowledge(self, messages: int) -> _Cost:
        group = f"sdk_{next(self._numbers)}"
        task = Acknowledge(topic=self._topic(messages), group=group, messages=messages, polled=_POLLED)
        return self._cost(task, messages)

    def _topic(self, messages: int) -> str:
        if messages not in self._topics:
            self.publish(messages)
        return self._topics[messages]

    def _cost(self, task: AnyTask, messages: int) -> _Cost:
        return _cost_of(self._server, self._sdk, task, messages)


class _ManyTopics:
    """Publishes to all topics in turn, then as many messages to one of them."""

    def __init__(self, server: HttpServer, sdk: SdkProcess, count: int, messages: int) -> None:
        self._server = server
        self._sdk = sdk
        topics = [f"bench.many.t{number}" for number in range(count)]
        for topic in topics:
            server.create_topic(topic)
        self._one = topics[0]
        sdk.ask(Publish(topics=topics, messages=messages, message_bytes=_MESSAGE_BYTES))
        self._after_all = messages - 1
        sdk.ask(Publish(topics=[self._one], messages=messages, message_bytes=_MESSAGE_BYTES))

    def follow_all(self, messages: int) -> _Cost:
        return _cost_of(self._server, self._sdk, Follow(pattern="bench.many.*", after=-1, messages=messages), messages)

    def follow_one(self, messages: int) -> _Cost:
        task = Follow(pattern=self._one, after=self._after_all, messages=messages)
        return _cost_of(self._server, self._sdk, task, messages)


def _cost_of(server: HttpServer, sdk: SdkProcess, task: AnyTask, messages: int) -> _Cost:
    before = server.cpu_seconds
    worked = sdk.ask(task)
    used = server.cpu_seconds - before
    return _Cost(messages / worked.seconds, worked.cpu_seconds / messages * 1e6, used / messages * 1e6)


def _rates(costs: Sequence[_Cost]) -> Samples:
    return Samples(tuple(cost.per_second for cost in costs))


def _costs(costs: Sequence[_Cost]) -> Samples:
    return Samples(tuple(cost.microseconds for cost in costs))


def _shares(name: str, costs: Sequence[_Cost]) -> str:
    client = statistics.median(cost.client_microseconds for cost in costs)
    server = statistics.median(cost.server_microseconds for cost in costs)
    return f"{name}: {client:.1f} µs of CPU a message in the client, {server:.1f} µs in the server."
