"""Rates of tasks over HTTP, in rounds, and the CPU time of the server."""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from bench.figures import Samples
from bench.http.client import HttpClient
from bench.http.server import HttpServer
from bench.http.tasks import Answer, AnyTask
from bench.kafka.tasks import Span
from bench.worker_process import expect

Made = TypeVar("Made", bound=Answer)


class Rate(NamedTuple):
    per_second: float
    cpu_microseconds: float
    """The server's CPU time for each."""


def rate(server: HttpServer, client: HttpClient, task: AnyTask, count: int) -> Rate:
    """Run a task and return how fast it was."""
    before = server.cpu_seconds
    span = expect(Span, client.ask(task))
    return Rate(count / span.seconds, (server.cpu_seconds - before) / count * 1e6)


def rounds(side: Callable[[int], Rate], work: int, count: int) -> list[Rate]:
    """Run rounds after one round to warm up."""
    side(work)
    return [side(work) for _ in range(count)]


def rates(found: Sequence[Rate]) -> Samples:
    return Samples(tuple(each.per_second for each in found))


def cpu_of(found: Sequence[Rate]) -> str:
    return f"{statistics.median(each.cpu_microseconds for each in found):.1f} µs"


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1_000
