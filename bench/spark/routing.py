"""Routed changes per second, with one route and with many, and their delay."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from bench.figures import Bar, Figure, Samples, Section, curve, slope_figure
from bench.http.client import HttpClient
from bench.http.rates import percentile
from bench.http.server import HttpServer, serving
from bench.http.tasks import ConsumeSteadily, InsertSteadily
from bench.kafka.tasks import Delays
from bench.spark.router import Routed, RoutingRounds, check_routed, load_changes, measure_router, python_condition, routing
from bench.worker_process import expect
from bench.workspace import Workspace

_MANY = 20
_PER_SECOND = 100
_LEAST_PER_SECOND = 250_000
_MOST_COST = 3
_MOST_P50_MS = 150
_WARM_UP_ROUNDS = 2
"""Rounds after the cold one."""


class _Rounds(NamedTuple):
    cold: Routed
    warm: Sequence[Routed]

    def samples(self) -> Samples:
        return Samples(tuple(each.changes_per_second for each in self.warm))

    def microseconds(self) -> Samples:
        return Samples(tuple(1e6 / each.changes_per_second for each in self.warm))


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.spark
    with serving(workspace) as server:
        one, many, in_python = _routed(workspace, server)
    with serving(workspace) as server:
        workspace.say(f"delay at {_PER_SECOND} changes a second")
        delays = _delays(workspace, server)
    return Section(
        title="The pipeline: routed changes",
        text=f"{scale.changes:,} changes of rows of 200 B wait in the log when `tailrace pipeline` starts with Spark on all"
        " cores; the figure is how many changes it reads, filters and publishes in a second, from the end of its first batch of"
        f" {scale.changes_a_batch:,} on. What waited at the start is the cold figure. Then the router is held up while as many"
        f" are written, again and again: {_WARM_UP_ROUNDS} times for Java to get warm, and {scale.routed_rounds} times that"
        f" count. One route takes every other change (`id % 2 = 0`), payload `full`; {_MANY} routes share all of them, in the"
        " same router, after one time that does not count; so does one route with the condition `format('%s', id % 2) = '0'`,"
        " which Python evaluates for every change. The server and the pipeline share the cores. Afterwards every topic"
        " is counted, its keys are told apart and added up. The delay is that from the request which inserts a row,"
        f" {_PER_SECOND} a second, to the routed message at a consumer that waits for it over HTTP, with one route and a router"
        f" that has routed for {scale.warm_up_seconds:g} s.",
        figures=[
            Figure(name="one route", ours=one.samples(), unit="changes/s", bar=Bar("at least", _LEAST_PER_SECOND)),
            Figure(name="one route, cold", ours=Samples((one.cold.changes_per_second,)), unit="changes/s"),
            Figure(name=f"{_MANY} routes", ours=many.samples(), unit="changes/s"),
            Figure(name="one route, evaluated by Python", ours=in_python.samples(), unit="changes/s"),
            Figure(
                name=f"time for a change with {_MANY} routes",
                ours=many.microseconds(),
                unit="µs",
                peer="one route",
                peers=one.microseconds(),
                bar=Bar("at most", _MOST_COST),
            ),
            Figure(name="delay, p50", ours=Samples((percentile(delays, 0.5),)), unit="ms", bar=Bar("at most", _MOST_P50_MS)),
            Figure(name="delay, p99", ours=Samples((percentile(delays, 0.99),)), unit="ms"),
        ],
        remarks=[
            _cpu("one route, cold", [one.cold]),
            _cpu("one route", one.warm),
            _cpu(f"{_MANY} routes", many.warm),
            _cpu("one route, evaluated by Python", in_python.warm),
        ],
    )


def _cpu(name: str, found: Sequence[Routed]) -> str:
    pipeline, server = median(each.pipeline_cpu for each in found), median(each.server_cpu for each in found)
    return f"CPU for a change, {name}: {pipeline:.1f} µs in the pipeline, {server:.1f} µs in the server."


def _routed(workspace: Workspace, server: HttpServer) -> tuple[_Rounds, _Rounds, _Rounds]:
    """Return the figures with one route, with many, and with one that Python evaluates."""
    scale = workspace.scale.spark
    workspace.say(f"{scale.changes:,} changes for one route, cold")
    table = load_changes(server, "bench.changes_one", 1, scale.changes)
    with routing(server, scale.changes_a_batch, workspace.root / "pipeline") as router:
        one = _rounds(workspace, RoutingRounds(server, router, table, scale.changes_a_batch), _WARM_UP_ROUNDS)
        workspace.say(f"{scale.changes:,} changes for {_MANY} routes")
        with router.held_up():
            table = load_changes(server, "bench.changes_many", _MANY, scale.changes)
        many = _rounds(workspace, RoutingRounds(server, router, table, scale.changes_a_batch), 0)
        workspace.say(f"{scale.changes:,} changes for a route that Python evaluates")
        with router.held_up():
            table = load_changes(server, "bench.changes_python", 1, scale.changes, python_condition)
        in_python = _rounds(workspace, RoutingRounds(server, router, table, scale.changes_a_batch), 0)
    return one, many, in_python


def _rounds(workspace: Workspace, rounds: RoutingRounds, warm_up: int) -> _Rounds:
    scale = workspace.scale.spark
    cold = rounds.first()
    for _ in range(warm_up):
        rounds.next(scale.changes)
    workspace.say(f"the same, warm, {scale.routed_rounds} times")
    warm = [rounds.next(scale.changes) for _ in range(scale.routed_rounds)]
    rounds.check()
    return _Rounds(cold, warm)


def _delays(workspace: Workspace, server: HttpServer) -> list[float]:
    table, topic = "bench.live", "bench.live_routed"
    server.sql(f"CREATE TABLE {table} (id BIGINT, sent DOUBLE, PRIMARY KEY (id))")
    server.create_topic(topic)
    server.sql(f"ALTER TOPIC {topic} ADD SOURCE {table} ON INSERT WHERE (id >= 0) WITH (payload = 'full')")
    scale = workspace.scale.spark
    warm_up_rows = round(_PER_SECOND * scale.warm_up_seconds)
    rows = warm_up_rows + round(_PER_SECOND * scale.steady_seconds)
    with (
        routing(server, scale.changes_a_batch, workspace.root / "pipeline"),
        HttpClient(server) as sender,
        HttpClient(server) as receiver,
    ):
        # The very first batch waits for Java, so it is awaited here.
        server.sql(f"INSERT INTO {table} (id, sent) VALUES (-1, 0)")
        server.sql(f"INSERT INTO {table} (id, sent) VALUES ({rows}, 0)")
        for _ in server.await_records([topic], 1, 120):
            pass
        receiver.ask(ConsumeSteadily(topic=topic, messages=rows + 1))
        sender.ask(InsertSteadily(table=table, rows=rows, per_second=_PER_SECOND))
        delays = expect(Delays, receiver.receive()).seconds
    return list(delays[1 + warm_up_rows :])


_BAR = Bar("at most", 0.5)
"""A bar for slopes: ten times as many routes cost at most three times as much."""


def run_many_routes(workspace: Workspace) -> Section:
    scale = workspace.scale.growth
    found: dict[int, Routed] = {}
    with serving(workspace) as server:
        for count in scale.routes:
            workspace.say(f"growth, routes: {scale.routed_changes:,} changes for {count}")
            table = load_changes(server, f"bench.grown_{count}", count, scale.routed_changes)
            out = workspace.root / "pipeline"
            found[count] = measure_router(server, table.topics, table.changes, table.routed, scale.routed_a_batch, out)
            check_routed(server, table)
    microseconds = {count: [1e6 / each.changes_per_second] for count, each in found.items()}
    times = curve("time for a change", "routes", "µs", microseconds)
    costs = curve("pipeline's CPU for a change", "routes", "µs", {count: [each.pipeline_cpu] for count, each in found.items()})
    return Section(
        title="Growth: routes",
        text=f"{scale.routed_changes:,} changes of rows of 200 B wait when `tailrace pipeline` starts, as in the subject on"
        " routed changes, with more and more routes; one route takes every other change, many share all of them. Each point is"
        " one run, from the moment at which 40 % are done to the end. Every topic is counted, its keys are told apart and added"
        " up.",
        figures=[slope_figure(times, _BAR), slope_figure(costs)],
        curves=[times, costs],
    )
