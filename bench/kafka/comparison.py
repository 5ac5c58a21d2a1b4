"""Two servers that run beside each other, each with clients of its own; one works while the other one rests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import NamedTuple, TypeVar

import msgspec
import psutil

from bench.figures import Samples, take_turns
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import Answer, Consume, CreateTopic, Load, Produce, Span
from bench.peers.servers import MakePeer, Peer, VoidPeer
from bench.scale import KafkaScale
from bench.workspace import Workspace, settle_disk
from tailrace.model.commit import Durability

T = TypeVar("T")
Made = TypeVar("Made", bound=Answer)

_WARM_UP_TURNS = 3
_WARM_UP_BYTES = 100


class ComparedServer:
    """A server that is measured."""

    def __init__(self, peer: Peer, start_seconds: float) -> None:
        self.peer = peer
        self.start_seconds = start_seconds
        self.sender = ClientProcess(peer)
        self.receiver = ClientProcess(peer)
        self._numbers = count()

    def new_topic(self, load: Load) -> Load:
        """The load, for a topic that is made for it."""
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
        """What the server has used so far."""
        times = psutil.Process(self.peer.pid).cpu_times()
        return float(times.user + times.system)


class Passed(NamedTuple):
    """What a load's way in and out took."""

    produced: Span
    consumed: Sequence[Span]
    """Once or several times, from the start."""
    produce_cpu_seconds: float
    consume_cpu_seconds: float
    """For all of these."""


class _Sent(NamedTuple):
    """A load that is in its topic."""

    load: Load
    took: Span
    cpu_seconds: float


class Comparison(NamedTuple):
    """Tailrace and another one, both running."""

    ours: ComparedServer
    other: ComparedServer

    def pass_through(self, load: Load, reads: int, *, other_first: bool) -> tuple[Passed, Passed]:
        """Ours and the other's. Both produce; then they consume in turn, `reads` times, with a new consumer each time, so
        that a slow moment of the machine meets both."""
        order = (self.other, self.ours) if other_first else (self.ours, self.other)
        sent = [_send(contender, load) for contender in order]
        rounds = [[_read(*pair) for pair in zip(order, sent, strict=True)] for _ in range(reads)]
        first, second = (_passed(each, read) for each, read in zip(sent, zip(*rounds, strict=True), strict=True))
        return (second, first) if other_first else (first, second)

    def take_turns(self, side: Callable[[ComparedServer, int], T], work: int, rounds: int) -> tuple[Sequence[T], Sequence[T]]:
        """Ours and the other's, round by round."""
        found = take_turns(
            {"ours": lambda work: side(self.ours, work), "other": lambda work: side(self.other, work)}, work, rounds
        )
        return found["ours"], found["other"]


@contextmanager
def comparing(ground: Workspace, make: MakePeer, durability: Durability) -> Iterator[ComparedServer]:
    """A server and its clients, gone afterwards."""
    with ground.folder() as folder, ExitStack() as stack:
        peer = make(folder, durability)
        stack.callback(peer.stop)
        contender = ComparedServer(peer, peer.start())
        stack.callback(contender.close)
        yield contender


@contextmanager
def compare(ground: Workspace, make_ours: MakePeer, make_other: MakePeer, durability: Durability) -> Iterator[Comparison]:
    with ExitStack() as stack:
        contenders = [stack.enter_context(comparing(ground, make, durability)) for make in (make_ours, make_other)]
        ground.say(f"{contenders[0].peer.name} beside {contenders[1].peer.name}")
        for contender in contenders:
            _warm_up(contender, ground.scale.kafka)
        yield Comparison(*contenders)


@contextmanager
def client_alone(ground: Workspace, durability: Durability) -> Iterator[ComparedServer | None]:
    """The clients at a server that does nothing, where what is acknowledged is synced: there the client may be the limit."""
    if durability != "fsync":
        yield None
        return
    with comparing(ground, VoidPeer, durability) as contender:
        for _ in range(_WARM_UP_TURNS):
            contender.sender.ask(Produce(contender.new_topic(_warm_up_load(ground.scale.kafka))))
        yield contender


def pass_through(contender: ComparedServer, load: Load) -> None:
    """Produce, then consume, then check."""
    _read(contender, _send(contender, load))


def _send(contender: ComparedServer, load: Load) -> _Sent:
    settle_disk()
    load = contender.new_topic(load)
    before = contender.cpu_seconds
    took = said(Span, contender.sender.ask(Produce(load)))
    return _Sent(load, took, contender.cpu_seconds - before)


def _read(contender: ComparedServer, sent: _Sent) -> tuple[Span, float]:
    """What it took, by the clock and of the server's CPU."""
    before = contender.cpu_seconds
    return check(contender, sent.load), contender.cpu_seconds - before


def _passed(sent: _Sent, reads: Sequence[tuple[Span, float]]) -> Passed:
    return Passed(sent.took, [took for took, _ in reads], sent.cpu_seconds, sum(cpu for _, cpu in reads))


def check(contender: ComparedServer, load: Load) -> Span:
    """Read all that a load has left in its topic; it is checked."""
    contender.receiver.ask(Consume(load))
    return said(Span, contender.receiver.hear())


def said(kind: type[Made], answer: Answer) -> Made:
    assert isinstance(answer, kind), answer
    return answer


def samples(values: Iterable[float]) -> Samples:
    return Samples(tuple(values))


def _warm_up(contender: ComparedServer, scale: KafkaScale) -> None:
    """A JVM is slow until it has compiled what it does often, and clients until they have their memory."""
    for _ in range(_WARM_UP_TURNS):
        pass_through(contender, _warm_up_load(scale))


def _warm_up_load(scale: KafkaScale) -> Load:
    return Load(topic="warm-up", records=scale.records(_WARM_UP_BYTES), record_bytes=_WARM_UP_BYTES)
