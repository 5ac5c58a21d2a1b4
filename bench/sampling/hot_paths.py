"""The paths that most time goes to: produce, fetch, SQL INSERT, HTTP publish and consume, and the router's Python."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from bench.figures import Section
from bench.ground import Ground
from bench.http.client import HttpClient
from bench.http.server import HttpServer, serving
from bench.http.tasks import ConsumeMessages, InsertRows, PublishMessages
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import Consume, CreateTopic, Load, Produce
from bench.peers.listener import KafkaListener
from bench.profile import Profile
from bench.sampling.sampler import Watched, py_spy, sample
from bench.spark.changes import load_changes
from bench.spark.router import routing

_RECORD_BYTES = 1_000
_TABLE = "bench.sampled"
_TOPIC = "bench.sampled_topic"
_ROUTER_CHANGES_A_SECOND = 60_000
"""Enough for the router to stay busy while it is sampled."""
_ROUTER_WARM_UP_SECONDS = 8
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 240
_WARM_SHARE = 0.2


def run(ground: Ground) -> Section:
    """Of the server."""
    py_spy()
    return _section([*_of_kafka(ground), *_of_http(ground)])


def run_router(ground: Ground) -> Section:
    """Of the pipeline's driver and its workers."""
    py_spy()
    return _section([_of_router(ground)])


def _section(profiles: Sequence[Profile]) -> Section:
    """It has no place of its own in the page: each profile stands beside the figures that it explains."""
    return Section(title="Profiles", text="", figures=[], profiles=profiles)


def _of_kafka(ground: Ground) -> Iterator[Profile]:
    topics = (f"sampled-{number}" for number in count())
    with serving(ground, "relaxed") as server, _kafka_client(server) as client:

        def produced() -> Load:
            load = Load(topic=next(topics), records=ground.scale.kafka.records(_RECORD_BYTES), record_bytes=_RECORD_BYTES)
            client.ask(CreateTopic(load))
            client.ask(Produce(load))
            return load

        yield _sampled(ground, "produce, Kafka, 1 KB, `relaxed`", "kafka", server, produced)
        load = produced()

        def consume() -> None:
            client.ask(Consume(load))
            client.hear()

        yield _sampled(ground, "fetch, Kafka, 1 KB", "kafka", server, consume)


def _of_http(ground: Ground) -> Iterator[Profile]:
    scale = ground.scale.http
    with serving(ground) as server, HttpClient(server) as client:
        server.sql(f"CREATE TABLE {_TABLE} (id BIGINT, body TEXT, PRIMARY KEY (id))")
        server.create_topic(_TOPIC)
        ids = count(step=scale.single_rows)
        numbers = count(step=scale.messages)

        def insert() -> None:
            first = next(ids)
            client.ask(
                InsertRows(
                    table=_TABLE, first_id=first, rows=scale.single_rows, rows_a_request=1, body_bytes=100, connections=32
                )
            )

        yield _sampled(ground, "SQL INSERT of one row, 32 clients", "sql-writing", server, insert)

        def publish() -> int:
            first = next(numbers)
            client.ask(
                PublishMessages(
                    topic=_TOPIC, first=first, messages=scale.messages, messages_a_request=100, body_bytes=100, connections=4
                )
            )
            return first + scale.messages

        yield _sampled(ground, "HTTP publish, 100 messages a request", "http", server, publish)
        there = publish()
        yield _sampled(
            ground,
            "HTTP consume, 1,000 messages a request",
            "http",
            server,
            lambda: client.ask(ConsumeMessages(topic=_TOPIC, messages=there, messages_a_request=1_000)),
        )


def _of_router(ground: Ground) -> Profile:
    seconds = ground.scale.sampled_seconds
    changes = round(_ROUTER_CHANGES_A_SECOND * (seconds + _ROUTER_WARM_UP_SECONDS))
    ground.say(f"{changes:,} changes for a router that is sampled")
    with serving(ground, "relaxed") as server, ground.folder() as folder:
        table = load_changes(server, "bench.routed_sampled", 1, changes)
        with routing(server, ground.scale.growth.routed_a_batch, folder / "said") as router:
            ground.say("sampled: the router's Python, once it is warm")
            for _ in server.await_records(table.topics, round(_WARM_SHARE * table.routed), _PATIENCE_SECONDS):
                pass
            return sample(
                "the router's Python, one route",
                "pipeline",
                Watched(router.pid, has_workers=True),
                seconds,
                folder,
                lambda: time.sleep(_LOOK_SECONDS),
            )


def _sampled(ground: Ground, name: str, beside: str, server: HttpServer, work: Callable[[], object]) -> Profile:
    """After one turn that is not looked at."""
    ground.say(f"sampled: {name}")
    work()
    with ground.folder() as folder:
        return sample(name, beside, Watched(server.pid), ground.scale.sampled_seconds, folder, work)


@contextmanager
def _kafka_client(server: HttpServer) -> Iterator[ClientProcess]:
    client = ClientProcess(KafkaListener(server))
    try:
        yield client
    finally:
        client.close()
