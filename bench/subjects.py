"""The subjects, by name, in the order of the page: everything that can be measured."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import hot_paths
from bench.capture import memory as capture_memory
from bench.capture import routed, snapshot, streaming
from bench.capture.debezium import debezium_capture
from bench.capture.side import MakeCapture
from bench.capture.tailrace import tailrace_capture
from bench.client import sdk
from bench.figures import Section
from bench.growth import append_cost, connections, topics_and_groups
from bench.http import querying, requests
from bench.kafka import checks, compaction, footprint, java_tools, latency, logins, secured, throughput
from bench.nats import comparison as nats
from bench.peers.debezium import debezium_jars
from bench.peers.kafka import KafkaPeer, NotObtainable, connector_jars, kafka_jars, kafka_tool_jars
from bench.peers.mirror_maker import mirror_maker_jars
from bench.peers.secured import SecuredKafkaPeer, SecuredTailracePeer
from bench.peers.servers import MakePeer, TailracePeer
from bench.postgres import comparison as postgres
from bench.results import ScaleName
from bench.shadow import comparison as shadow
from bench.shadow.copies import mirror_maker, tailrace_shadow
from bench.spark import memory, realtime, routing, topics
from bench.store import append, fetch, lagging_reader, opening, tiny_appends
from bench.workspace import Workspace
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.session import check_spark

BesideKafka = Callable[[Workspace, MakePeer, MakePeer], Section]

KAFKA_SUBJECTS: Mapping[str, BesideKafka] = {
    "kafka": throughput.run_relaxed,
    "kafka-synced": throughput.run_synced,
    "kafka-waiting": latency.run_relaxed,
    "kafka-waiting-synced": latency.run_synced,
    "kafka-footprint": footprint.run,
}


Run = Callable[[Workspace, Path], Section]


class Subject(NamedTuple):
    run: Run
    quick_seconds: int
    full_seconds: int
    """Roughly the time on two idle cores, to plan a run and to recognise a hang."""
    is_extra: bool = False
    """Measured only when requested by name."""

    def expected_seconds(self, scale: ScaleName) -> int:
        return self.full_seconds if scale == "full" else self.quick_seconds


def _alone(run: Callable[[Workspace], Section]) -> Run:
    return lambda workspace, _: run(workspace)


def _on_spark(run: Callable[[Workspace], Section]) -> Run:
    def run_if_possible(workspace: Workspace, _: Path) -> Section:
        _require_spark()
        return run(workspace)

    return run_if_possible


def _beside_kafka(run: BesideKafka) -> Run:
    return lambda workspace, cache: run(workspace, TailracePeer, partial(KafkaPeer, kafka_jars(cache)))


def _with_tools(workspace: Workspace, cache: Path) -> Section:
    tools = kafka_tool_jars(cache)
    return java_tools.run(workspace, TailracePeer, partial(KafkaPeer, kafka_jars(cache)), tools)


def _beside_secured_kafka(workspace: Workspace, cache: Path) -> Section:
    return secured.run(workspace, SecuredTailracePeer, partial(SecuredKafkaPeer, kafka_jars(cache)))


def _beside_debezium(run: Callable[[Workspace, MakeCapture, MakeCapture], Section]) -> Run:
    def run_if_possible(workspace: Workspace, cache: Path) -> Section:
        return run(workspace, tailrace_capture, partial(debezium_capture, kafka_jars(cache), debezium_jars(cache)))

    return run_if_possible


def _beside_mirror_maker(workspace: Workspace, cache: Path) -> Section:
    jars = mirror_maker_jars(cache)
    return shadow.run(workspace, partial(KafkaPeer, kafka_jars(cache)), tailrace_shadow, partial(mirror_maker, jars))


def _beside_connector(workspace: Workspace, cache: Path) -> Section:
    _require_spark()
    return topics.run(workspace, partial(KafkaPeer, kafka_jars(cache)), connector_jars(cache))


def _in_real_time(workspace: Workspace, cache: Path) -> Section:
    _require_spark()
    return realtime.run(workspace, connector_jars(cache))


def _captured_and_routed(workspace: Workspace, cache: Path) -> Section:
    _require_spark()
    return routed.run(workspace, connector_jars(cache))


def _long_in_real_time(workspace: Workspace, cache: Path) -> Section:
    _require_spark()
    return realtime.run_long(workspace, connector_jars(cache))


def _require_spark() -> None:
    try:
        check_spark()
    except PipelineError as why:
        raise NotObtainable(str(why)) from why


SUBJECTS: Mapping[str, Subject] = {
    "append": Subject(_alone(append.run_relaxed), 20, 40),
    "append-synced": Subject(_alone(append.run_synced), 15, 20),
    "tiny-appends": Subject(_alone(tiny_appends.run), 15, 40),
    "fetch": Subject(_alone(fetch.run), 15, 40),
    "opening": Subject(_alone(opening.run_after_kill), 20, 40),
    "partitions": Subject(_alone(opening.run_many_partitions), 15, 12),
    "laggard": Subject(_alone(lagging_reader.run), 15, 20),
    "sql-writing": Subject(_alone(requests.run_inserts), 20, 40),
    "sql-querying": Subject(_alone(querying.run), 25, 60),
    "sql-postgres": Subject(_alone(postgres.run), 50, 260),
    "http": Subject(_alone(requests.run_messages), 10, 25),
    "http-subscribers": Subject(_alone(requests.run_subscribers), 20, 30),
    "sdk": Subject(_alone(sdk.run), 15, 30),
    "kafka": Subject(_beside_kafka(KAFKA_SUBJECTS["kafka"]), 35, 140),
    "kafka-synced": Subject(_beside_kafka(KAFKA_SUBJECTS["kafka-synced"]), 35, 120),
    "kafka-waiting": Subject(_beside_kafka(KAFKA_SUBJECTS["kafka-waiting"]), 25, 65),
    "kafka-waiting-synced": Subject(_beside_kafka(KAFKA_SUBJECTS["kafka-waiting-synced"]), 25, 65),
    "kafka-footprint": Subject(_beside_kafka(KAFKA_SUBJECTS["kafka-footprint"]), 20, 35),
    "kafka-tools": Subject(_with_tools, 150, 330),
    "kafka-secured": Subject(_beside_secured_kafka, 40, 90),
    "security-checks": Subject(_alone(checks.run), 40, 180),
    "security-logins": Subject(_alone(logins.run), 60, 170),
    "compaction": Subject(_alone(compaction.run), 90, 400),
    "nats": Subject(_alone(nats.run_relaxed), 20, 65),
    "nats-synced": Subject(_alone(nats.run_synced), 20, 65),
    "capture": Subject(_beside_debezium(streaming.run), 160, 420),
    "capture-snapshot": Subject(_beside_debezium(snapshot.run), 90, 330),
    "capture-routed": Subject(_captured_and_routed, 90, 110),
    "capture-memory": Subject(
        _alone(lambda workspace: capture_memory.run(workspace, tailrace_capture)), 60, 400, is_extra=True
    ),
    "shadow": Subject(_beside_mirror_maker, 150, 420),
    "pipeline": Subject(_on_spark(routing.run), 150, 310),
    "pipeline-realtime": Subject(_in_real_time, 80, 100),
    "pipeline-realtime-long": Subject(_long_in_real_time, 120, 1_300, is_extra=True),
    "pipeline-topics": Subject(_beside_connector, 130, 220),
    "pipeline-memory": Subject(_on_spark(memory.run), 60, 420, is_extra=True),
    "growth-topics": Subject(_alone(topics_and_groups.run_topics), 25, 45),
    "growth-partitions": Subject(_alone(append_cost.run_partition_count), 10, 25),
    "growth-groups": Subject(_alone(topics_and_groups.run_groups), 8, 12),
    "growth-connections": Subject(_alone(connections.run), 15, 30),
    "growth-log": Subject(_alone(append_cost.run_log_size), 12, 45),
    "growth-routes": Subject(_on_spark(routing.run_many_routes), 50, 75),
    "profiles": Subject(_alone(hot_paths.run), 40, 70, is_extra=True),
    "profiles-pipeline": Subject(_on_spark(hot_paths.run_router), 40, 50, is_extra=True),
}
