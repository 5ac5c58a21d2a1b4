"""A Kafka beside the server, to which a shadow copies: behind a faulty network, killed and started again.

It is an Apache Kafka if Java and its jars are here (`make compat` gets them), and another Tailrace server if not.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailrace.model.address import Address
from tests.compat.tools.programs import KAFKA_JARS
from tests.support.apache_kafka import ApacheKafka
from tests.support.copied_topics import ClusterView
from tests.support.ports import free_port
from tests.support.proxy import FaultyProxy
from tests.support.shadow_pair import OtherKafka, TailraceAsKafka

CAUGHT_UP_SECONDS = 150.0
_LOOK_SECONDS = 0.5
_MOST_FINDINGS = 20


class OtherKafkaProcess:
    """Runs at most one Kafka, and none unless a workload starts it."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "other"
        self._kafka: OtherKafka | None = None
        self._network: FaultyProxy | None = None

    @property
    def is_wanted(self) -> bool:
        return self._kafka is not None

    @property
    def network(self) -> FaultyProxy:
        """What lies between this Kafka and whoever copies to it."""
        assert self._network is not None
        return self._network

    @property
    def address(self) -> str:
        return self.network.url.removeprefix("http://")

    def start(self) -> None:
        listens = Address("127.0.0.1", free_port())
        self._network = FaultyProxy(f"http://{listens}").__enter__()
        if shutil.which("java") is not None and KAFKA_JARS.exists():
            self._kafka = ApacheKafka(KAFKA_JARS, self._folder, listens, self.address)
        else:
            self._kafka = TailraceAsKafka(self._folder, self.address, listens.port)
        self._kafka.start()

    def kill_and_start(self) -> None:
        assert self._kafka is not None
        self._kafka.kill()
        self._kafka.start()

    def close(self) -> None:
        if self._kafka is not None:
            self._kafka.kill()
        if self._network is not None:
            self._network.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)


class ComparedCopy:
    """Holds topics of the server against their copies, record by record, and the offsets of groups against each other."""

    def __init__(self, here: str, there: str, topics: Sequence[str], groups: Sequence[str]) -> None:
        self._here = ClusterView(here)
        self._there = ClusterView(there)
        self._topics = topics
        self._groups = groups
        self.records = 0
        self.offsets = 0

    def findings(self) -> tuple[str, ...]:
        """Wait until everything is copied. Return what is wrong."""
        deadline = time.monotonic() + CAUGHT_UP_SECONDS
        while True:
            found = [*self._contents(), *self._offsets()]
            if not found or time.monotonic() > deadline:
                return tuple(found[:_MOST_FINDINGS])
            time.sleep(_LOOK_SECONDS)

    def _contents(self) -> Iterator[str]:
        self.records = 0
        copied = self._there.topics()
        for topic in self._topics:
            ours = self._here.contents(topic)
            if copied.get(topic) != len(ours):
                yield f"{topic} has {copied.get(topic)} partitions in the copy and {len(ours)} here"
                continue
            for partition, (theirs, own) in enumerate(zip(self._there.contents(topic), ours, strict=True)):
                self.records += len(own)
                for at, (other, record) in enumerate(zip(theirs, own, strict=False)):
                    if other != record:
                        yield f"record {at} of {topic}/{partition} is {record} here and {other} in the copy"
                        break
                if len(theirs) != len(own):
                    yield f"{topic}/{partition} has {len(theirs)} records in the copy and {len(own)} here"

    def _offsets(self) -> Iterator[str]:
        self.offsets = 0
        for topic in self._topics:
            for partition in range(self._here.topics()[topic]):
                for group in self._groups:
                    ours = self._here.committed(group, topic, partition)
                    if ours is None:
                        continue
                    self.offsets += 1
                    theirs = self._there.committed(group, topic, partition)
                    if theirs is None:
                        yield f"group {group} has no offset in {topic}/{partition} in the copy"
                        continue
                    due = self._here.value_at(topic, ours, partition)
                    next_one = self._there.value_at(topic, theirs, partition)
                    if due != next_one:
                        yield f"group {group} would read {next_one!r} in the copy of {topic}/{partition}, and {due!r} is due"
