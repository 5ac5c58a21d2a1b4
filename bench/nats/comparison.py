"""Tailrace beside NATS JetStream: throughput, messages one at a time, and delays from publisher to reader."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import msgspec

from bench.figures import Figure, Samples, Section, take_turns
from bench.http.rates import percentile
from bench.http.server import KafkaListener, serving
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import (
    Answer,
    Consume,
    ConsumeSteadily,
    CreateTopic,
    Delays,
    Load,
    Produce,
    ProduceOneByOne,
    ProduceSteadily,
    Span,
    Task,
)
from bench.machine import exact_cpu_seconds_of
from bench.nats.client import MessagingProcess
from bench.peers.nats import NatsPeer
from bench.scale import NatsScale
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk
from tailrace.model.commit import Durability

PER_SECOND = 1_000
_SIZES = {100: "100 B", 1_000: "1 KB"}
_RATE = "messages/s"
_NATS, _SDK, _KAFKA = "nats-py", "SDK", "librdkafka"
_CLIENTS = (
    " NATS is asked by nats-py, its client for Python. Tailrace is asked by its own client for Python over HTTP, and by"
    " librdkafka over its Kafka listener; no client speaks to both servers, so a rate tells of server and client together, and"
    " only the CPU of the server tells of the server alone. One publisher sends a stream of messages without waiting (nats-py:"
    " up to 4,000 on their way; the SDK: requests of up to 2,000; librdkafka: its default batches); then one reader gets them"
    " all from the start. One at a time: each when the one before it is acknowledged. Delay: from send to receipt,"
    f" {PER_SECOND:,} messages a second of 1 KB. Each message has a number; each must come once, in order."
)


class _Asked(Protocol):
    """A client's process."""

    def ask(self, task: Task) -> Answer: ...

    def receive(self) -> Answer: ...

    def close(self) -> None: ...


class _Side(NamedTuple):
    """A server with a pair of clients of one kind."""

    sender: _Asked
    receiver: _Asked
    pid: int
    name: str
    numbers: Iterator[int]

    def new_topic(self, load: Load) -> Load:
        load = msgspec.structs.replace(load, topic=f"{load.topic}-{self.name}-{next(self.numbers)}")
        self.sender.ask(CreateTopic(load))
        return load


class Measured(NamedTuple):
    """The name of a figure and its unit."""

    name: str
    unit: str


Found = Mapping[Measured, float]


class _Work(NamedTuple):
    """Work that each side does in each round."""

    said: str
    amount: int
    do: Callable[[_Side, int], Found]


def run_relaxed(workspace: Workspace) -> Section:
    return Section(
        title="Beside NATS JetStream, default settings",
        text="Both servers acknowledge what they have written and sync it later: Tailrace (`relaxed`) within 100 ms, NATS"
        " within two minutes." + _CLIENTS,
        figures=_figures(workspace, "relaxed"),
    )


def run_synced(workspace: Workspace) -> Section:
    return Section(
        title="Beside NATS JetStream, synced",
        text="Both servers acknowledge what is on the disk: Tailrace with `fsync`, NATS with `sync_interval: always`. Reading"
        " syncs nothing, so it is checked and not told." + _CLIENTS,
        figures=_figures(workspace, "fsync"),
    )


def _figures(workspace: Workspace, durability: Durability) -> list[Figure]:
    figures: list[Figure] = []
    with _sides(workspace, durability) as (peer, sides):
        for work in _works(workspace.scale.nats, durability):
            workspace.say(f"Tailrace, `{durability}`, beside {peer}: {work.said}")
            turns = {client: partial(work.do, side) for client, side in sides.items()}
            found = take_turns(turns, work.amount, workspace.scale.nats.rounds)
            figures += _compared(peer, found)
    return figures


def _works(scale: NatsScale, durability: Durability) -> Iterator[_Work]:
    for size, name in _SIZES.items():
        if durability == "fsync":
            yield _Work(f"a stream of {name}", scale.synced_records, partial(_publish, size, name))
        else:
            yield _Work(f"a stream of {name}", scale.records, partial(_pass_through, size, name))
    for size, name in _SIZES.items():
        yield _Work(f"{name} one at a time", scale.one_by_one, partial(_one_by_one, size, name))
    yield _Work("delay", round(PER_SECOND * scale.steady_seconds), _delay)


def _compared(peer: str, found: Mapping[str, Sequence[Found]]) -> Iterator[Figure]:
    """Return the comparison of each client of Tailrace with NATS."""
    theirs = found[_NATS]
    for measured in theirs[0]:
        for client in (_SDK, _KAFKA):
            yield Figure(
                name=f"{measured.name}, {client}",
                ours=Samples(tuple(each[measured] for each in found[client])),
                unit=measured.unit,
                peer=peer,
                peers=Samples(tuple(each[measured] for each in theirs)),
            )


@contextmanager
def _sides(workspace: Workspace, durability: Durability) -> Iterator[tuple[str, Mapping[str, _Side]]]:
    """Run the servers; yield the name of the peer and each server with its clients, by the name of the client."""
    with workspace.folder() as folder, ExitStack() as stack:
        peer = NatsPeer(folder, durability)
        stack.callback(peer.stop)
        peer.start()
        server = stack.enter_context(serving(workspace, durability))
        clients: Mapping[str, tuple[Callable[[], _Asked], int]] = {
            _NATS: (lambda: MessagingProcess("nats-py", f"nats://{peer.address}"), peer.pid),
            _SDK: (lambda: MessagingProcess("sdk", server.url), server.pid),
            _KAFKA: (lambda: ClientProcess(KafkaListener(server)), server.pid),
        }
        sides = {}
        for name, (make, pid) in clients.items():
            side = _Side(make(), make(), pid, name, count())
            stack.callback(side.sender.close)
            stack.callback(side.receiver.close)
            sides[name] = side
        yield peer.name, sides


def _pass_through(size: int, name: str, side: _Side, records: int) -> Found:
    settle_disk()
    load = side.new_topic(Load(topic="stream", records=records, record_bytes=size))
    before = exact_cpu_seconds_of(side.pid)
    published = expect(Span, side.sender.ask(Produce(load)))
    between = exact_cpu_seconds_of(side.pid)
    consumed = _read(side, load)
    after = exact_cpu_seconds_of(side.pid)
    return {
        Measured(f"publish {name}", _RATE): records / published.seconds,
        Measured(f"consume {name}", _RATE): records / consumed.seconds,
        Measured(f"server's CPU, publish {name}", "µs"): (between - before) / records * 1e6,
        Measured(f"server's CPU, consume {name}", "µs"): (after - between) / records * 1e6,
    }


def _publish(size: int, name: str, side: _Side, records: int) -> Found:
    """Read everything only to check it: reading syncs nothing."""
    found = _pass_through(size, name, side, records)
    return {measured: value for measured, value in found.items() if "consume" not in measured.name}


def _one_by_one(size: int, name: str, side: _Side, records: int) -> Found:
    load = side.new_topic(Load(topic="single", records=records, record_bytes=size))
    span = expect(Span, side.sender.ask(ProduceOneByOne(load)))
    _read(side, load)
    return {Measured(f"one at a time, {name}", _RATE): records / span.seconds}


def _delay(side: _Side, records: int) -> Found:
    load = side.new_topic(Load(topic="delay", records=records, record_bytes=1_000))
    side.receiver.ask(ConsumeSteadily(load))
    side.sender.ask(ProduceSteadily(load, PER_SECOND))
    delays = expect(Delays, side.receiver.receive()).seconds
    return {Measured(f"delay, p{share * 100:.0f}", "ms"): percentile(delays, share) for share in (0.5, 0.99)}


def _read(side: _Side, load: Load) -> Span:
    """Read everything and check it."""
    side.receiver.ask(Consume(load))
    return expect(Span, side.receiver.receive())
