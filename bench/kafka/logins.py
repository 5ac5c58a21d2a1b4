"""What a storm of logins does to others: the delay of a steady producer's records without it, and beside it."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Section, take_turns
from bench.http.rates import percentile
from bench.kafka.comparison import ComparedServer, comparing, samples
from bench.kafka.login_storm import Storm, StormProcess, Weathered
from bench.kafka.tasks import ConsumeSteadily, Delays, Load, ProduceSteadily
from bench.machine import exact_cpu_seconds_of
from bench.peers.secured import SecuredTailracePeer
from bench.worker_process import expect
from bench.workspace import Workspace

LOGINS_PER_SECOND = 100
PER_SECOND = 500
_RECORD_BYTES = 1_000
_LONGER_SECONDS = 0.5
"""How much longer clients log in than records are sent: the producer connects meanwhile."""
_QUIET, _RIGHT, _WRONG, _ELSEWHERE = "without logins", "logins", "failed logins", "logins to another server"
_BAR = Bar("at most", 2.0)
_STORM_BAR = Bar("at least", 0.9 * LOGINS_PER_SECOND)
"""If the client makes fewer, the storm is none."""


class _Round(NamedTuple):
    p50: float
    """In milliseconds."""
    p99: float
    cores: float
    """The server's CPU seconds for a second."""
    logins_per_second: float = 0.0
    login_p50: float = 0.0


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.kafka
    with ExitStack() as stack:
        compared, other = (stack.enter_context(comparing(workspace, SecuredTailracePeer, "relaxed")) for _ in range(2))
        storm, storm_elsewhere = (stack.enter_context(StormProcess(each.peer)) for each in (compared, other))
        workspace.say(f"{PER_SECOND} records a second, with and without {LOGINS_PER_SECOND} logins a second")
        found = take_turns(
            {
                _QUIET: lambda records: _beside(compared, records),
                _RIGHT: lambda records: _beside(compared, records, storm, is_right=True),
                _WRONG: lambda records: _beside(compared, records, storm, is_right=False),
                _ELSEWHERE: lambda records: _beside(compared, records, storm_elsewhere),
            },
            round(PER_SECOND * scale.storm_seconds),
            scale.rounds,
        )

    def figure(name: str, unit: str, storm: str, value: Callable[[_Round], float], bar: Bar | None = None) -> Figure:
        return Figure(
            name=name,
            ours=samples(map(value, found[storm])),
            unit=unit,
            peer=_QUIET,
            peers=samples(map(value, found[_QUIET])),
            bar=bar,
        )

    figures: list[Figure] = []
    for kind in (_RIGHT, _WRONG):
        rates = samples(each.logins_per_second for each in found[kind])
        figures += [
            figure(f"delay beside {kind}, p99", "ms", kind, lambda each: each.p99, _BAR),
            figure(f"delay beside {kind}, p50", "ms", kind, lambda each: each.p50),
            figure(f"cores that the server uses beside {kind}", "cores", kind, lambda each: each.cores),
            Figure(name=f"{kind} begun", ours=rates, unit="logins/s", bar=_STORM_BAR),
            Figure(name=f"an answer to {kind} takes, p50", ours=samples(each.login_p50 for each in found[kind]), unit="ms"),
        ]
    figures.append(figure(f"delay beside {_ELSEWHERE}, p99", "ms", _ELSEWHERE, lambda each: each.p99))
    return Section(
        title="A storm of logins",
        text=f"{PER_SECOND} records a second of 1 KB, and the delay from the call that sends one to the call that returns it,"
        f" over TLS with SCRAM-SHA-512, `relaxed`: alone, beside {LOGINS_PER_SECOND} logins a second, and beside as many with a"
        " wrong password. Each login has a connection and a TLS handshake of its own. Who logs in comes from another address"
        " than the producer, and has salted and hashed its password before. It sends the next login when that is due, not when"
        " the last one is answered: an address that fails waits up to 8 s. All of it shares the machine's cores; the storm's"
        " client has a lower priority. How much of a delay comes from that is shown by the same storm at another server, from"
        " whose logins this one has no work.",
        figures=figures,
    )


def _beside(compared: ComparedServer, records: int, storm: StormProcess | None = None, *, is_right: bool = True) -> _Round:
    """Measure delays while a storm blows, if there is one, and wait until it is over."""
    seconds = records / PER_SECOND
    logins = round((seconds + _LONGER_SECONDS) * LOGINS_PER_SECOND)
    load = compared.new_topic(Load(topic="steady", records=records, record_bytes=_RECORD_BYTES))
    compared.receiver.ask(ConsumeSteadily(load))
    before = exact_cpu_seconds_of(compared.peer.pid)
    if storm is not None:
        storm.begin(Storm(logins, LOGINS_PER_SECOND, is_right))
    compared.sender.ask(ProduceSteadily(load, PER_SECOND))
    used = exact_cpu_seconds_of(compared.peer.pid) - before
    delays = expect(Delays, compared.receiver.receive()).seconds
    p50, p99 = percentile(delays, 0.5), percentile(delays, 0.99)
    if storm is None:
        return _Round(p50, p99, used / seconds)
    weathered = storm.receive()
    _check(weathered, logins, is_right=is_right)
    return _Round(p50, p99, used / seconds, logins / weathered.begun_seconds, percentile(weathered.seconds, 0.5))


def _check(weathered: Weathered, logins: int, *, is_right: bool) -> None:
    if (weathered.accepted, weathered.refused) != ((logins, 0) if is_right else (0, logins)):
        raise AuditFailure(
            f"of {logins} logins with {'the' if is_right else 'a wrong'} password {weathered.accepted} were accepted and"
            f" {weathered.refused} refused"
        )
