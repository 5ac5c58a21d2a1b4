"""How late changes of a table of PostgreSQL are in a topic that they are routed to, in real time."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.capture.delays import PER_SECOND, measure_delays
from bench.capture.orders import ROW, running_orders
from bench.capture.side import ChangeTopic
from bench.capture.tailrace import SOURCE, tailrace_capture
from bench.figures import Bar, Figure, Samples, Section
from bench.http.rates import percentile
from bench.spark.router import RouterProcess
from bench.workspace import Workspace
from tailrace.model.address import Address

_TOPIC = "bench.routed"
_BATCH_ROWS = 200_000
_START_SECONDS = 180.0
_MOST_P99_MS = 150
"""100 to the topic of the changes, and the 50 that the pipeline may take from there."""


class _Row(msgspec.Struct):
    change: int


_DECODER = msgspec.json.Decoder(_Row)


class _RoutedTopic(NamedTuple):
    kafka: Address
    name: str = "the route"
    topic: str = _TOPIC

    def check(self) -> None:
        """Do nothing: a pipeline that has failed sends no records."""

    def read_change(self, value: bytes) -> int:
        return _DECODER.decode(value).change


def run(workspace: Workspace, jars: Path) -> Section:
    with ExitStack() as stack:
        orders = stack.enter_context(running_orders(workspace))
        capture = stack.enter_context(tailrace_capture(workspace, orders))
        capture.prepare()
        capture.start()
        server = capture.server
        # A table is known with its first change.
        orders.insert_at_once(-1, 1)
        changes = stack.enter_context(closing(ChangeTopic(capture, capture.topic)))
        changes.await_events(0, 1, _START_SECONDS)
        server.create_topic(_TOPIC)
        server.sql(f"ALTER TOPIC {_TOPIC} ADD SOURCE {SOURCE}.public.orders ON INSERT WITH (payload = 'full')")
        workspace.say("the pipeline starts in real time")
        flags = ("--latency", "realtime", "--jars", str(jars))
        said = stack.enter_context(workspace.folder()) / "pipeline"
        router = RouterProcess(server, _BATCH_ROWS, said, *flags)
        stack.callback(router.stop)
        routed = _RoutedTopic(capture.kafka)
        topic = stack.enter_context(closing(ChangeTopic(routed, _TOPIC)))
        orders.insert_at_once(0, 1)
        topic.await_events(0, 1, _START_SECONDS)
        workspace.say(f"{PER_SECOND:,} changes a second, one in each transaction")
        delays = measure_delays(workspace, orders, routed, 1)
        topic.check_changes_in_any_order(0, delays.next_change)
        database = orders.name
    return Section(
        title="PostgreSQL as a source: delay of routed changes",
        text=f"Rows are inserted into a table of {database}, {ROW}, one in each transaction, at a steady rate. They are"
        " captured by `tailrace capture` and routed to a topic by `tailrace pipeline --latency realtime`. The delay is that"
        " from the return of COMMIT to the message at a Kafka client that waits for it. Afterwards each row has arrived once.",
        figures=[
            Figure(
                name=f"delay at {PER_SECOND:,} changes/s, {name}",
                ours=Samples((percentile(delays.seconds, share),)),
                unit="ms",
                bar=bar,
            )
            for name, share, bar in (("p50", 0.5, None), ("p99", 0.99, Bar("at most", _MOST_P99_MS)), ("longest", 1.0, None))
        ],
        remarks=[f"Reached {delays.rate:,.0f} of {PER_SECOND:,} changes/s."],
    )
