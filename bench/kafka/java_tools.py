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
from bench.workspace import Workspace, forget_files, settle_disk

_RECORD_BYTES = 1_000
_PARTITIONS = (1, 12)
_PRODUCER = ("acks=all", "linger.ms=5", "batch.size=65536")
_JAVA = ("java", "-Xms512M", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_SENT = re.compile(r"^(\d+) records sent, .*?\(([\d.]+) MB/sec\)", re.MULTILINE)
_MEBIBYTE = 1 << 20
_TOOL_SECONDS = 300


_WARM_UP_READS = 3
"""Before the first round of each shape both servers have their hot code compiled by one load, read this often."""
_READ_FIELDS = 10
_READ_RECORDS_FIELD = 4
_READ_SPEED_FIELD = 8
"""MB/s from the assignment of partitions on."""


class Speed(NamedTuple):
    """One load, in and twice out."""

    produced: float
    """MB/s"""
    consumed: float
    consumed_from_disk: float
    produce_cpu: float
    """The server's CPU seconds for 1 GB."""
    consume_cpu: float
    consume_cpu_from_disk: float


def run(workspace: Workspace, ours: MakePeer, other: MakePeer, jars: Path) -> Section:
    scale = workspace.scale.kafka
    records = scale.tool_records
    figures: list[Figure] = []
    with compare(workspace, ours, other, "relaxed") as both:
        for partitions in _PARTITIONS:
            workspace.say(f"Kafka's tools: {_shape(partitions)}")
            for compared in (both.ours, both.other):
                _warm_up(jars, partitions, compared, records)
            ours_found, others_found = both.take_turns(partial(_speed, jars, partitions), records, scale.rounds)
            figures += _figures(partitions, both.other.peer.name, ours_found, others_found)
    return Section(
        title="Beside Kafka: Kafka's own tools",
        text=f"`ProducerPerformance` of Kafka {KAFKA} sends {records:,} records of {_RECORD_BYTES:,} B ("
        f"{', '.join(f'`{setting}`' for setting in _PRODUCER)}), then `ConsumerPerformance` reads them all from the start; its"
        " time is that from the assignment of partitions to the last record. Then the page cache of the server's files is"
        " dropped, and another consumer reads them from the disk. Each run is a Java process of its own, at both servers in"
        f" turn, after a load that was read {_WARM_UP_READS} times. Nothing is synced before it is acknowledged.",
        figures=figures,
    )


def _warm_up(jars: Path, partitions: int, compared: ComparedServer, records: int) -> None:
    load = compared.new_topic(Load(topic="warm-up", records=records, record_bytes=_RECORD_BYTES, partitions=partitions))
    _produce(jars, compared, load)
    for _ in range(_WARM_UP_READS):
        _consume(jars, compared, load)


def _speed(jars: Path, partitions: int, compared: ComparedServer, records: int) -> Speed:
    settle_disk()
    load = compared.new_topic(Load(topic="tools", records=records, record_bytes=_RECORD_BYTES, partitions=partitions))
    produced, produce_cpu = _produce(jars, compared, load)
    consumed, consume_cpu = _consume(jars, compared, load)
    forget_files(compared.folder)
    from_disk, cpu_from_disk = _consume(jars, compared, load)
    return Speed(produced, consumed, from_disk, produce_cpu, consume_cpu, cpu_from_disk)


def _produce(jars: Path, compared: ComparedServer, load: Load) -> tuple[float, float]:
    """Return MB/s, and the server's CPU seconds for 1 GB."""
    before = compared.cpu_seconds
    said = _run(
        jars,
        "ProducerPerformance",
        *("--topic", load.topic, "--num-records", str(load.records), "--record-size", str(_RECORD_BYTES)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={compared.peer.address}", *_PRODUCER),
    )
    return sent_speed(said, load.records), (compared.cpu_seconds - before) / (load.megabytes / 1_000)


def _consume(jars: Path, compared: ComparedServer, load: Load) -> tuple[float, float]:
    """Return MB/s, and the server's CPU seconds for 1 GB."""
    before = compared.cpu_seconds
    said = _run(
        jars,
        "ConsumerPerformance",
        *("--bootstrap-server", str(compared.peer.address), "--topic", load.topic, "--messages", str(load.records)),
        *("--timeout", "60000", "--hide-header"),
    )
    return read_speed(said, load.records), (compared.cpu_seconds - before) / (load.megabytes / 1_000)


def sent_speed(said: str, records: int) -> float:
    """Return the MB/s that ProducerPerformance says in the end. Raise `PeerFailure` unless it sent all records."""
    found = _SENT.findall(said)
    if not found or int(found[-1][0]) != records:
        raise PeerFailure(f"ProducerPerformance did not send {records} records: {said}")
    return float(found[-1][1]) * _MEBIBYTE / 1_000_000


def read_speed(said: str, records: int) -> float:
    """Return the MB/s that ConsumerPerformance says. Raise `PeerFailure` unless it read all records."""
    fields = [field.strip() for line in said.strip().splitlines()[-1:] for field in line.split(",")]
    if len(fields) != _READ_FIELDS or int(fields[_READ_RECORDS_FIELD]) < records:
        raise PeerFailure(f"ConsumerPerformance did not read {records} records: {said}")
    return float(fields[_READ_SPEED_FIELD]) * _MEBIBYTE / 1_000_000


def _run(jars: Path, tool: str, *arguments: str) -> str:
    command = [*_JAVA, "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TOOL_SECONDS)
    if done.returncode != 0:
        raise PeerFailure(f"{tool} ended with code {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout


def _figures(partitions: int, peer: str, ours: Sequence[Speed], others: Sequence[Speed]) -> list[Figure]:
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
        figure("consume from disk", "MB/s", "consumed_from_disk", Bar("at least", 1)),
        figure("CPU of the server for 1 GB in", "s", "produce_cpu", None),
        figure("CPU of the server for 1 GB out", "s", "consume_cpu", Bar("at most", 1)),
        figure("CPU of the server for 1 GB out, from disk", "s", "consume_cpu_from_disk", Bar("at most", 1)),
    ]


def _shape(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"
