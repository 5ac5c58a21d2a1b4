"""What authentication and the checks of permissions cost without TLS: Tailrace with them beside Tailrace without.

A few percent are to be told apart, and two processes of the same program differ by as much. So servers are started several
times, and one more without authentication shows how much is chance.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple, TypeVar

from bench.figures import Bar, Figure, Section, take_turns
from bench.kafka.comparison import ComparedServer, check, comparing, pass_through, samples
from bench.kafka.tasks import Load, Produce, ProduceOneByOne, Span
from bench.peers.secured import AuthenticatedTailracePeer
from bench.peers.servers import MakePeer, TailracePeer
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk

T = TypeVar("T")

_RECORD_BYTES = 1_000
_SMALL_BYTES = 100
_BULK_LOADS = 4
"""How much larger a load is than elsewhere: the CPU of a load is to be told to the percent."""
_PAUSE_SECONDS = 0.25
"""Until a login is in the audit, and the consumer has logged in to the coordinator of its group."""
_WARM_UP_TURNS = 3
_ON, _OFF, _OFF_TOO = "on", "off", "off too"
_SERVERS: Mapping[str, MakePeer] = {_ON: AuthenticatedTailracePeer, _OFF: TailracePeer, _OFF_TOO: TailracePeer}
_BAR = Bar("under", 1.03)


class _Work(NamedTuple):
    """One round of one kind of work."""

    rate: float
    """records/s"""
    cpu: float
    """The server's, µs a record."""


_Found = Mapping[str, Sequence[_Work]]
"""All rounds of a kind of work, by server."""


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.kafka
    bulk = _BULK_LOADS * scale.records(_RECORD_BYTES)
    produced: dict[str, list[_Work]] = {name: [] for name in _SERVERS}
    consumed: dict[str, list[_Work]] = {name: [] for name in _SERVERS}
    singles: dict[str, list[_Work]] = {name: [] for name in _SERVERS}
    for pair in range(scale.check_pairs):
        with ExitStack() as stack:
            workspace.say(f"authentication on, off, and off again: servers {pair + 1} of {scale.check_pairs}")
            servers = {name: stack.enter_context(comparing(workspace, make, "relaxed")) for name, make in _SERVERS.items()}
            for compared in servers.values():
                for _ in range(_WARM_UP_TURNS):
                    pass_through(compared, Load(topic="warm-up", records=bulk, record_bytes=_RECORD_BYTES))
            for name, works in _in_turn(servers, _pass_through, bulk, scale.check_rounds).items():
                produced[name] += [sent for sent, _ in works]
                consumed[name] += [read for _, read in works]
            for name, each in _in_turn(servers, _one_by_one, scale.checked_one_by_one, scale.check_rounds).items():
                singles[name] += each
    return Section(
        title="What checks cost without TLS",
        text='The same work at a server with `authentication = "required"`, whose client has logged in by SCRAM-SHA-512 over'
        " `SASL_PLAINTEXT` as a user with grants, and at one with authentication off, `relaxed` both: a producer as fast as it"
        " can and then a consumer, 1 KB; and records of 100 B, each when the one before it is acknowledged. CPU is that of the"
        f" server's process. To log in is not part of it. The servers are started {scale.check_pairs} times. The same ratio"
        " between two servers with authentication off says how much of it is chance.",
        figures=[
            *_figures("produce 1 KB", produced),
            *_figures("consume 1 KB", consumed),
            *_figures("one at a time, 100 B", singles),
        ],
    )


def _in_turn(
    servers: Mapping[str, ComparedServer], side: Callable[[ComparedServer, int], T], work: int, rounds: int
) -> dict[str, list[T]]:
    return take_turns({name: partial(side, compared) for name, compared in servers.items()}, work, rounds)


def _pass_through(compared: ComparedServer, records: int) -> tuple[_Work, _Work]:
    settle_disk()
    load = compared.new_topic(_load("checked", records, _RECORD_BYTES))
    sent = expect(Span, compared.sender.ask(Produce(load)))
    return _work(sent, records), _work(check(compared, load), records)


def _one_by_one(compared: ComparedServer, records: int) -> _Work:
    load = compared.new_topic(_load("checked-singly", records, _SMALL_BYTES))
    span = expect(Span, compared.sender.ask(ProduceOneByOne(load)))
    check(compared, load)
    return _work(span, records)


def _load(topic: str, records: int, record_bytes: int) -> Load:
    return Load(topic=topic, records=records, record_bytes=record_bytes, pause_seconds=_PAUSE_SECONDS)


def _work(span: Span, records: int) -> _Work:
    return _Work(records / span.seconds, span.cpu_seconds / records * 1e6)


def _figures(name: str, found: _Found) -> list[Figure]:
    def figure(what: str, unit: str, value: Callable[[_Work], float], one: str, bar: Bar | None = None) -> Figure:
        return Figure(
            name=f"{name}, {what}",
            ours=samples(map(value, found[one])),
            unit=unit,
            peer="authentication off",
            peers=samples(map(value, found[_OFF])),
            bar=bar,
        )

    return [
        figure("CPU of the server", "µs", lambda work: work.cpu, _ON, _BAR),
        figure("rate", "records/s", lambda work: work.rate, _ON),
        figure("CPU of another server without", "µs", lambda work: work.cpu, _OFF_TOO),
    ]
