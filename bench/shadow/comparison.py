"""Topics of a server to a Kafka, exactly once: how fast a backlog is copied, at which cost, and how late single records are."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import msgspec

from bench.figures import Bar, Figure, Samples, Section, take_turns
from bench.http.rates import percentile
from bench.http.server import HttpServer, KafkaListener, cpu_seconds_of, serving
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import CreateTopic, Load, Produce, ProduceSteadily, Span
from bench.peers.servers import MakePeer, Peer
from bench.shadow.copies import MakeCopier, TopicCopier
from bench.shadow.target import TargetTopic
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk

_LEAST_RATIO = 1.5
_MOST_P99_MS = 500
_SHAPES = ((1_000, 1), (100, 12), (1_000, 12), (100, 1))
"""Bytes of a record, and partitions."""
_FEW_SHAPES = 2
_PER_SECOND = 1_000
_LEAST_MEGABYTES_A_SECOND = 2
"""What copies slower than this is not waited for."""
_START_SECONDS = 60.0
_PRODUCER = {"linger.ms": 20, "batch.size": 65_536}


class _Copied(NamedTuple):
    """One round of one copier."""

    rate: float
    """MB/s"""
    copier_cpu: float
    """The CPU seconds of the process that copies, for 1 GB."""
    target_cpu: float


def run(workspace: Workspace, make_target: MakePeer, make_ours: MakeCopier, make_other: MakeCopier) -> Section:
    scale = workspace.scale.shadow
    figures: list[Figure] = []
    with ExitStack() as stack:
        server = stack.enter_context(serving(workspace, "relaxed"))
        target = make_target(stack.enter_context(workspace.folder()), "relaxed")
        stack.callback(target.stop)
        target.start()
        copiers = {
            "ours": stack.enter_context(make_ours(workspace, server, target)),
            "other": stack.enter_context(make_other(workspace, server, target)),
        }
        workspace.say(f"{copiers['ours'].name} beside {copiers['other'].name}, to {target.name}")
        pair = _Pair(server, target)
        stack.callback(pair.close)
        pair.warm_up(list(copiers.values()), scale.warm_up_bytes)
        peer = copiers["other"].name
        for record_bytes, partitions in _SHAPES if scale.has_every_shape else _SHAPES[:_FEW_SHAPES]:
            load = Load(topic="", records=scale.copied_bytes // record_bytes, record_bytes=record_bytes, partitions=partitions)
            workspace.say(f"{_shape(load)}")
            sides = {name: partial(pair.copy, load, copier) for name, copier in copiers.items()}
            found = take_turns(sides, load.records, scale.rounds)
            figures += _figures(load, peer, found["ours"], found["other"])
        workspace.say(f"delay at {_PER_SECOND:,} records a second")
        delays = take_turns(
            {name: partial(pair.delay, copier) for name, copier in copiers.items()},
            round(_PER_SECOND * scale.steady_seconds),
            scale.rounds,
        )
        for share, bar in ((0.5, None), (0.99, Bar("under", _MOST_P99_MS))):
            for side, whose, judged in (("ours", "", bar), ("other", f" with {peer}", None)):
                found_delays = Samples(tuple(percentile(each, share) for each in delays[side]))
                figures.append(
                    Figure(name=f"delay of a record{whose}, p{share * 100:.0f}", ours=found_delays, unit="ms", bar=judged)
                )
    return Section(
        title="Beside MirrorMaker 2: topics to a Kafka, exactly once",
        text="Both copy a topic that is there from a Tailrace server to the same Kafka, one after the other, with exactly once:"
        " transactions in the target, and positions in them. The time is that from the first record in the target to the last"
        " that is committed, so what it takes to begin does not count; all records are read and checked afterwards. Delay: from"
        " the call that sends a record to Tailrace to the call that returns it from Kafka.",
        figures=figures,
        remarks=[remark for copier in copiers.values() for remark in copier.remarks],
    )


class _Pair:
    """A server and a target."""

    def __init__(self, server: HttpServer, target: Peer) -> None:
        self._target = target
        self._sender = ClientProcess(KafkaListener(server))
        self._topics = 0

    def close(self) -> None:
        self._sender.close()

    def warm_up(self, copiers: Sequence[TopicCopier], size: int) -> None:
        """A JVM is slow until it has compiled its hot code, that of the target too."""
        for record_bytes in (1_000, 100):
            load = Load(topic="", records=size // record_bytes, record_bytes=record_bytes)
            for copier in copiers:
                self.copy(load, copier, load.records)

    def copy(self, load: Load, copier: TopicCopier, records: int) -> _Copied:
        """Fill a topic, copy it, and check the copy."""
        load = self._new_topic(msgspec.structs.replace(load, records=records, settings=_PRODUCER))
        self._sender.ask(Produce(load))
        settle_disk()
        topic = copier.start(load.topic, load.partitions)
        try:
            used = self._cpu(copier)
            ends = TargetTopic(self._target.address, topic, load.partitions)

            def begin() -> None:
                used[:] = self._cpu(copier)

            seconds = _START_SECONDS + load.megabytes / _LEAST_MEGABYTES_A_SECOND
            passed = ends.await_records(load.records, copier, seconds, begin)
            after = self._cpu(copier)
        finally:
            copier.stop()
        ends.check(load)
        gigabytes = load.megabytes / 1_000
        copier_cpu, target_cpu = ((now - before) / gigabytes for now, before in zip(after, used, strict=True))
        return _Copied(load.megabytes / passed.seconds, copier_cpu, target_cpu)

    def delay(self, copier: TopicCopier, records: int) -> Sequence[float]:
        """Return the seconds that each record takes to the other side."""
        load = self._new_topic(Load(topic="", records=records, record_bytes=1_000))
        topic = copier.start(load.topic, 1, prompt=True)
        try:
            copier.await_running()
            self._sender.begin(ProduceSteadily(load, _PER_SECOND))
            delays = list(TargetTopic(self._target.address, topic, 1).delays(records))
            expect(Span, self._sender.receive())
        finally:
            copier.stop()
        return delays

    def _new_topic(self, load: Load) -> Load:
        self._topics += 1
        load = msgspec.structs.replace(load, topic=f"copied-{self._topics}")
        self._sender.ask(CreateTopic(load))
        return load

    def _cpu(self, copier: TopicCopier) -> list[float]:
        return [cpu_seconds_of(copier.pid), cpu_seconds_of(self._target.pid)]


def _figures(load: Load, peer: str, ours: Sequence[_Copied], others: Sequence[_Copied]) -> list[Figure]:
    def figure(name: str, unit: str, field: str, bar: Bar | None = None) -> Figure:
        mine, theirs = (Samples(tuple(getattr(each, field) for each in side)) for side in (ours, others))
        return Figure(name=f"{name}, {_shape(load)}", ours=mine, unit=unit, peer=peer, peers=theirs, bar=bar)

    return [
        figure("copy", "MB/s", "rate", Bar("at least", _LEAST_RATIO)),
        figure("CPU of the copying for 1 GB", "s", "copier_cpu"),
        figure("CPU of the target for 1 GB", "s", "target_cpu"),
    ]


def _shape(load: Load) -> str:
    return f"{load.record_bytes:,} B, {load.partitions} partition{'s' if load.partitions > 1 else ''}"
