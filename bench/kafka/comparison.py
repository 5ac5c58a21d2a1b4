"""Compares two servers that run at the same time, each with its own clients; one works while the other is idle."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import psutil

from bench.figures import Samples, take_turns
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import Answer, Consume, CreateTopic, Load, Produce, Span
from bench.peers.servers import MakePeer, Peer, VoidPeer
from bench.scale import KafkaScale
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk
from tailrace.model.commit import Durability

T = TypeVar("T")
Made = TypeVar("Made", bound=Answer)

_WARM_UP_TURNS = 3
_WARM_UP_BYTES = 100


class ComparedServer:
    """A server that is measured."""

    def __init__(self, peer: Peer, start_seconds: float, folder: Path) -> None:
        self.peer = peer
        self.folder = folder
        self.start_seconds = start_seconds
        self.sender = ClientProcess(peer)
        self.receiver = ClientProcess(peer)
        self._numbers = count()

    def new_topic(self, load: Load) -> Load:
        """Create a topic for a load and return the load."""
        load = msgspec.structs.replace(load, topic=f"{load.topic}-{next(self._numbers)}")
        self.sender.ask(CreateTopic(load))
        return load

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()

    @property
    def memory_megabytes(self) -> float:
        return float(psutil.Process(self.peer.pid).memory_info().rss) / 1e6

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the server so far."""
        times = psutil.Process(self.peer.pid).cpu_times()
        return float(times.user + times.system)


class Passed(NamedTuple):
    """The time to produce and to consume a load."""

    produced: Span
    consumed: Sequence[Span]
    """The times of all reads, each from the start."""
    produce_cpu_seconds: float
    consume_cpu_seconds: float
    """The server's CPU time for all reads."""


class _Sent(NamedTuple):
    """A load that was produced."""

    load: Load
    took: Span
    cpu_seconds: float


class Comparison(NamedTuple):
    """Tailrace and another server, both running."""

    ours: ComparedServer
    other: ComparedServer

    def pass_through(self, load: Load, reads: int, *, other_first: bool) -> tuple[Passed, Passed]:
        """Return the times of ours and of the other. Both produce, then consume in turn, `reads` times, with a new consumer
        each time, so that a slow moment of the machine affects both."""
        order = (self.other, self.ours) if other_first else (self.ours, self.other)
        sent = [_send(compared, load) for compared in order]
        rounds = [[_read(*pair) for pair in zip(order, sent, strict=True)] for _ in range(reads)]
        first, second = (_passed(each, read) for each, read in zip(sent, zip(*rounds, strict=True), strict=True))
        return (second, first) if other_first else (first, second)

    def take_turns(self, side: Callable[[ComparedServer, int], T], work: int, rounds: int) -> tuple[Sequence[T], Sequence[T]]:
        """Return the results of ours and of the other, round by round."""
        found = take_turns(
            {"ours": lambda work: side(self.ours, work), "other": lambda work: side(self.other, work)}, work, rounds
        )
        return found["ours"], found["other"]


@contextmanager
def comparing(workspace: Workspace, make: MakePeer, durability: Durability) -> Iterator[ComparedServer]:
    """Run a server and its clients, and stop them afterwards."""
    with workspace.folder() as folder, ExitStack() as stack:
        peer = make(folder, durability)
        stack.callback(peer.stop)
        compared = ComparedServer(peer, peer.start(), folder)
        stack.callback(compared.close)
        yield compared


@contextmanager
def compare(workspace: Workspace, make_ours: MakePeer, make_other: MakePeer, durability: Durability) -> Iterator[Comparison]:
    with ExitStack() as stack:
        compared_servers = [stack.enter_context(comparing(workspace, make, durability)) for make in (make_ours, make_other)]
        workspace.say(f"{compared_servers[0].peer.name} beside {compared_servers[1].peer.name}")
        for compared in compared_servers:
            _warm_up(compared, workspace.scale.kafka)
        yield Comparison(*compared_servers)


@contextmanager
def client_alone(workspace: Workspace, durability: Durability) -> Iterator[ComparedServer | None]:
    """Run clients at a server that does nothing, for synced work, where the client may be the limit."""
    if durability != "fsync":
        yield None
        return
    with comparing(workspace, VoidPeer, durability) as compared:
        for _ in range(_WARM_UP_TURNS):
            compared.sender.ask(Produce(compared.new_topic(_warm_up_load(workspace.scale.kafka))))
        yield compared


def pass_through(compared: ComparedServer, load: Load) -> None:
    """Produce, then consume, then check."""
    _read(compared, _send(compared, load))


def _send(compared: ComparedServer, load: Load) -> _Sent:
    settle_disk()
    load = compared.new_topic(load)
    before = compared.cpu_seconds
    took = expect(Span, compared.sender.ask(Produce(load)))
    return _Sent(load, took, compared.cpu_seconds - before)


def _read(compared: ComparedServer, sent: _Sent) -> tuple[Span, float]:
    """Return the elapsed time and the server's CPU time."""
    before = compared.cpu_seconds
    return check(compared, sent.load), compared.cpu_seconds - before


def _passed(sent: _Sent, reads: Sequence[tuple[Span, float]]) -> Passed:
    return Passed(sent.took, [took for took, _ in reads], sent.cpu_seconds, sum(cpu for _, cpu in reads))


def check(compared: ComparedServer, load: Load) -> Span:
    """Read all records of a load and check them."""
    compared.receiver.ask(Consume(load))
    return expect(Span, compared.receiver.receive())


def samples(values: Iterable[float]) -> Samples:
    return Samples(tuple(values))


def _warm_up(compared: ComparedServer, scale: KafkaScale) -> None:
    """Warm up: a JVM is slow until it has compiled its hot code, and clients until they have their memory."""
    for _ in range(_WARM_UP_TURNS):
        pass_through(compared, _warm_up_load(scale))


def _warm_up_load(scale: KafkaScale) -> Load:
    return Load(topic="warm-up", records=scale.records(_WARM_UP_BYTES), record_bytes=_WARM_UP_BYTES)
