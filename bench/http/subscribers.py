"""Many subscribers, all fed with the same messages at an even pace."""

from typing import NamedTuple

from bench.figures import Bar, Figure, Section
from bench.ground import Ground
from bench.http.client import HttpClient
from bench.http.measuring import percentile, said
from bench.http.server import HttpServer, serving
from bench.http.tasks import PublishSteadily, Subscribe
from bench.kafka.tasks import Delays
from bench.measure import Samples

_PER_SECOND = 100
_MOST_DELAY_MS = 1_000
"""For the slowest percent. Nobody calls it live when it takes longer."""


class _Fed(NamedTuple):
    p50: float
    p99: float
    cpu_share: float
    """Of one core, while messages came."""
    memory_megabytes: float


def run(ground: Ground) -> Section:
    scale = ground.scale.http
    messages = round(_PER_SECOND * scale.fed_seconds)
    with serving(ground) as server, HttpClient(server) as publisher:
        ground.say(f"{scale.subscribers:,} subscribers")
        fed = [_feed(server, publisher, number, scale.subscribers, messages) for number in range(scale.rounds)]
    return Section(
        title="HTTP: subscribers",
        text=f"{scale.subscribers:,} subscribers by Server-Sent Events, all in one process, of one topic that gets"
        f" {_PER_SECOND} messages a second, one by one. Each subscriber must get each message once and in the order of cursors."
        " The delay is that from the publisher's request to the subscriber's socket, of all events together.",
        figures=[
            Figure(
                name="delay, p99",
                ours=Samples(tuple(each.p99 for each in fed)),
                unit="ms",
                bar=Bar("at most", _MOST_DELAY_MS),
            ),
            Figure(name="delay, p50", ours=Samples(tuple(each.p50 for each in fed)), unit="ms"),
            Figure(name="CPU of the server", ours=Samples(tuple(each.cpu_share for each in fed)), unit="cores"),
            Figure(name="memory of the server", ours=Samples(tuple(each.memory_megabytes for each in fed)), unit="MB"),
        ],
        remarks=[f"That is {scale.subscribers * _PER_SECOND:,} events/s; the process that gets them shares the cores too."],
    )


def _feed(server: HttpServer, publisher: HttpClient, number: int, subscribers: int, messages: int) -> _Fed:
    topic = f"fed_{number}.messages"
    server.create_topic(topic)
    with HttpClient(server) as crowd:
        crowd.ask(Subscribe(pattern=topic, subscribers=subscribers, messages=messages))
        before = server.cpu_seconds
        publisher.ask(PublishSteadily(topic=topic, messages=messages, per_second=_PER_SECOND))
        delays = said(Delays, crowd.hear()).seconds
        used = server.cpu_seconds - before
    return _Fed(percentile(delays, 0.5), percentile(delays, 0.99), used / (messages / _PER_SECOND), server.memory_megabytes)
