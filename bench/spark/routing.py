"""Routed changes: how many a second, with one route and with twenty, and how soon they are there."""

from bench.figures import Bar, Figure, Section
from bench.ground import Ground
from bench.http.client import HttpClient
from bench.http.measuring import percentile, said
from bench.http.server import HttpServer, serving
from bench.http.tasks import ConsumeSteadily, InsertSteadily
from bench.kafka.tasks import Delays
from bench.measure import Samples
from bench.spark.changes import check_routed, load_changes
from bench.spark.router import Routed, measure_router, routing

_MANY = 20
_PER_SECOND = 100
_LEAST_PER_SECOND = 200_000
_MOST_COST = 3
_MOST_P50_MS = 500
_WARM_UP_ROWS = 300


def run(ground: Ground) -> Section:
    with serving(ground) as server:
        one = _routed(ground, server, 1)
        many = _routed(ground, server, _MANY)
        ground.say(f"delay at {_PER_SECOND} changes a second")
        delays = _delays(ground, server)
    return Section(
        title="The pipeline: routed changes",
        text="Changes of rows of 200 B wait in the log when `tailrace pipeline` starts with Spark on all cores; the figure is"
        " how many changes it reads, filters and publishes in a second, from the moment at which 40 % are done to the end. One"
        f" route takes every other change (`id % 2 = 0`), payload `full`; {_MANY} routes share all of them. The server and the"
        " pipeline share the cores. Afterwards every topic is counted, its keys are told apart and added up. The delay is that"
        f" from the request which inserts a row, {_PER_SECOND} a second, to the routed message at a consumer that waits for it"
        " over HTTP.",
        figures=[
            Figure(
                name="one route",
                ours=Samples((one.changes_per_second,)),
                unit="changes/s",
                bar=Bar("at least", _LEAST_PER_SECOND),
            ),
            Figure(name=f"{_MANY} routes", ours=Samples((many.changes_per_second,)), unit="changes/s"),
            Figure(
                name=f"time for a change with {_MANY} routes",
                ours=Samples((1e6 / many.changes_per_second,)),
                unit="µs",
                peer="one route",
                peers=Samples((1e6 / one.changes_per_second,)),
                bar=Bar("at most", _MOST_COST),
            ),
            Figure(name="delay, p50", ours=Samples((percentile(delays, 0.5),)), unit="ms", bar=Bar("at most", _MOST_P50_MS)),
            Figure(name="delay, p99", ours=Samples((percentile(delays, 0.99),)), unit="ms"),
        ],
        remarks=[_cpu("one route", one), _cpu(f"{_MANY} routes", many)],
    )


def _cpu(name: str, found: Routed) -> str:
    return f"CPU for a change, {name}: {found.pipeline_cpu:.1f} µs in the pipeline, {found.server_cpu:.1f} µs in the server."


def _routed(ground: Ground, server: HttpServer, routes: int) -> Routed:
    scale = ground.scale.spark
    ground.say(f"{scale.changes:,} changes for {routes} route{'s' if routes > 1 else ''}")
    table = load_changes(server, f"bench.changes_{routes}", routes, scale.changes)
    ground.say("they are routed")
    out = ground.root / "pipeline"
    found = measure_router(server, table.topics, table.changes, table.routed, scale.changes_a_batch, out)
    check_routed(server, table)
    return found


def _delays(ground: Ground, server: HttpServer) -> list[float]:
    table, topic = "bench.live", "bench.live_routed"
    server.sql(f"CREATE TABLE {table} (id BIGINT, sent DOUBLE, PRIMARY KEY (id))")
    server.create_topic(topic)
    server.sql(f"ALTER TOPIC {topic} ADD SOURCE {table} ON INSERT WHERE (id >= 0) WITH (payload = 'full')")
    rows = _WARM_UP_ROWS + round(_PER_SECOND * ground.scale.spark.steady_seconds)
    with (
        routing(server, ground.scale.spark.changes_a_batch, ground.root / "pipeline"),
        HttpClient(server) as sender,
        HttpClient(server) as receiver,
    ):
        # The first batch of all waits for Java; it is awaited here.
        server.sql(f"INSERT INTO {table} (id, sent) VALUES (-1, 0)")
        server.sql(f"INSERT INTO {table} (id, sent) VALUES ({rows}, 0)")
        for _ in server.await_records([topic], 1, 120):
            pass
        receiver.ask(ConsumeSteadily(topic=topic, messages=rows + 1))
        sender.ask(InsertSteadily(table=table, rows=rows, per_second=_PER_SECOND))
        delays = said(Delays, receiver.hear()).seconds
    return list(delays[1 + _WARM_UP_ROWS :])
