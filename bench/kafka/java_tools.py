"""Throughput as Kafka's own tools measure it: ProducerPerformance and ConsumerPerformance, both in Java."""

import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.figures import Bar, Figure, Section
from bench.kafka.comparison import ComparedServer, compare, samples
from bench.kafka.tasks import Load
from bench.peers.kafka import KAFKA
from bench.peers.servers import MakePeer, PeerFailure
from bench.workspace import Workspace, settle_disk

_RECORD_BYTES = 1_000
_PARTITIONS = (1, 12)
_PRODUCER = ("acks=all", "linger.ms=5", "batch.size=65536")
_JAVA = ("java", "-Xms512M", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_SENT = re.compile(r"^(\d+) records sent, .*?\(([\d.]+) MB/sec\)", re.MULTILINE)
_MEBIBYTE = 1 << 20
_TOOL_SECONDS = 300


class _Speed(NamedTuple):
    produced: float
    """MB/s"""
    consumed: float
    produce_cpu: float
    """The server's CPU seconds for 1 GB."""
    consume_cpu: float


def run(workspace: Workspace, ours: MakePeer, other: MakePeer, jars: Path) -> Section:
    scale = workspace.scale.kafka
    records = scale.tool_records
    figures: list[Figure] = []
    with compare(workspace, ours, other, "relaxed") as both:
        for partitions in _PARTITIONS:
            workspace.say(f"Kafka's tools: {_shape(partitions)}")
            ours_found, others_found = both.take_turns(partial(_speed, jars, partitions), records, scale.rounds)
            figures += _figures(partitions, both.other.peer.name, ours_found, others_found)
    return Section(
        title="Beside Kafka: Kafka's own tools",
        text=f"`ProducerPerformance` of Kafka {KAFKA} sends {records:,} records of {_RECORD_BYTES:,} B ("
        f"{', '.join(f'`{setting}`' for setting in _PRODUCER)}), then `ConsumerPerformance` reads them all from the start; its"
        " time is that from the assignment of partitions to the last record. Each run is a Java process of its own, at both"
        " servers in turn. Nothing is synced before it is acknowledged.",
        figures=figures,
    )


def _speed(jars: Path, partitions: int, compared: ComparedServer, records: int) -> _Speed:
    settle_disk()
    load = Load(topic="tools", records=records, record_bytes=_RECORD_BYTES, partitions=partitions)
    load = compared.new_topic(load)
    gigabytes = load.megabytes / 1_000
    server = f"bootstrap.servers={compared.peer.address}"
    before = compared.cpu_seconds
    sent = _run(
        jars,
        "ProducerPerformance",
        *("--topic", load.topic, "--num-records", str(records), "--record-size", str(_RECORD_BYTES), "--throughput", "-1"),
        *("--producer-props", server, *_PRODUCER),
    )
    produced = compared.cpu_seconds
    read = _run(
        jars,
        "ConsumerPerformance",
        *("--bootstrap-server", str(compared.peer.address), "--topic", load.topic, "--messages", str(records)),
        *("--timeout", "60000", "--hide-header"),
    )
    consumed = compared.cpu_seconds
    found = _SENT.findall(sent)
    if not found or int(found[-1][0]) != records:
        raise PeerFailure(f"ProducerPerformance did not send {records} records: {sent}")
    fields = [field.strip() for field in read.strip().splitlines()[-1].split(",")]
    if int(fields[4]) < records:
        raise PeerFailure(f"ConsumerPerformance read {fields[4]} of {records} records")
    to_megabytes = _MEBIBYTE / 1_000_000
    return _Speed(
        float(found[-1][1]) * to_megabytes,
        float(fields[8]) * to_megabytes,
        (produced - before) / gigabytes,
        (consumed - produced) / gigabytes,
    )


def _run(jars: Path, tool: str, *arguments: str) -> str:
    command = [*_JAVA, "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TOOL_SECONDS)
    if done.returncode != 0:
        raise PeerFailure(f"{tool} ended with code {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout


def _figures(partitions: int, peer: str, ours: Sequence[_Speed], others: Sequence[_Speed]) -> list[Figure]:
    def figure(name: str, unit: str, field: str, bar: Bar | None) -> Figure:
        return Figure(
            name=f"{name}, {_shape(partitions)}",
            ours=samples(getattr(each, field) for each in ours),
            unit=unit,
            peer=peer,
            peers=samples(getattr(each, field) for each in others),
            bar=bar,
        )

    return [
        figure("produce", "MB/s", "produced", Bar("at least", 1)),
        figure("consume", "MB/s", "consumed", Bar("at least", 1)),
        figure("CPU of the server for 1 GB in", "s", "produce_cpu", None),
        figure("CPU of the server for 1 GB out", "s", "consume_cpu", Bar("at most", 1)),
    ]


def _shape(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"
