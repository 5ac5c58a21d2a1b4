"""Two servers that run beside each other, each with clients of its own; one works while the other one rests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import NamedTuple, TypeVar

import msgspec
import psutil

from bench.ground import Ground, settle_disk
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import Answer, Consume, CreateTopic, Load, Produce, Span
from bench.measure import Samples, take_turns
from bench.peers.contract import MakePeer, Peer
from bench.peers.void import VoidPeer
from bench.scale import KafkaScale
from tailrace.model.durability import Durability

T = TypeVar("T")
Made = TypeVar("Made", bound=Answer)

_WARM_UP_TURNS = 3
_WARM_UP_BYTES = 100


class Contender:
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


class Duel(NamedTuple):
    """Tailrace and another one, both running."""

    ours: Contender
    other: Contender

    def take_turns(self, side: Callable[[Contender, int], T], work: int, rounds: int) -> tuple[Sequence[T], Sequence[T]]:
        """Ours and the other's, round by round."""
        found = take_turns(
            {"ours": lambda work: side(self.ours, work), "other": lambda work: side(self.other, work)}, work, rounds
        )
        return found["ours"], found["other"]


@contextmanager
def contending(ground: Ground, make: MakePeer, durability: Durability) -> Iterator[Contender]:
    """A server and its clients, gone afterwards."""
    with ground.folder() as folder, ExitStack() as stack:
        peer = make(folder, durability)
        stack.callback(peer.stop)
        contender = Contender(peer, peer.start())
        stack.callback(contender.close)
        yield contender


@contextmanager
def duel(ground: Ground, make_ours: MakePeer, make_other: MakePeer, durability: Durability) -> Iterator[Duel]:
    with ExitStack() as stack:
        contenders = [stack.enter_context(contending(ground, make, durability)) for make in (make_ours, make_other)]
        ground.say(f"{contenders[0].peer.name} beside {contenders[1].peer.name}")
        for contender in contenders:
            _warm_up(contender, ground.scale.kafka)
        yield Duel(*contenders)


@contextmanager
def client_alone(ground: Ground, durability: Durability) -> Iterator[Contender | None]:
    """The clients at a server that does nothing, where what is acknowledged is synced: there the client may be the limit."""
    if durability != "fsync":
        yield None
        return
    with contending(ground, VoidPeer, durability) as contender:
        for _ in range(_WARM_UP_TURNS):
            contender.sender.ask(Produce(contender.new_topic(_warm_up_load(ground.scale.kafka))))
        yield contender


def pass_through(contender: Contender, load: Load, reads: int = 1) -> Passed:
    """Produce, then consume, then check; the last two `reads` times, each with a consumer of its own."""
    settle_disk()
    load = contender.new_topic(load)
    before = contender.cpu_seconds
    produced = said(Span, contender.sender.ask(Produce(load)))
    between = contender.cpu_seconds
    consumed = [check(contender, load) for _ in range(reads)]
    return Passed(produced, consumed, between - before, contender.cpu_seconds - between)


def check(contender: Contender, load: Load) -> Span:
    """Read all that a load has left in its topic; it is checked."""
    contender.receiver.ask(Consume(load))
    return said(Span, contender.receiver.hear())


def said(kind: type[Made], answer: Answer) -> Made:
    assert isinstance(answer, kind), answer
    return answer


def samples(values: Iterable[float]) -> Samples:
    return Samples(tuple(values))


def _warm_up(contender: Contender, scale: KafkaScale) -> None:
    """A JVM is slow until it has compiled what it does often, and clients until they have their memory."""
    for _ in range(_WARM_UP_TURNS):
        pass_through(contender, _warm_up_load(scale))


def _warm_up_load(scale: KafkaScale) -> Load:
    return Load(topic="warm-up", records=scale.records(_WARM_UP_BYTES), record_bytes=_WARM_UP_BYTES)
