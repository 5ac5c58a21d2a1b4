"""Copies of topics are measured and checked. Tailrace takes the place of Kafka and of MirrorMaker here."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.audit import AuditFailure
from bench.http.server import serving
from bench.kafka.tasks import Load, Numbering
from bench.peers.kafka import NotObtainable
from bench.peers.servers import TailracePeer
from bench.shadow import comparison
from bench.shadow.copies import tailrace_shadow
from bench.shadow.target import TargetTopic
from bench.subjects import SUBJECTS
from bench.workspace import Workspace
from tests.bench.scale import TINY


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, TINY, lambda _: None)


@pytest.mark.long
def test_copies_are_measured_beside_another_copy(workspace: Workspace) -> None:
    section = comparison.run(workspace, TailracePeer, tailrace_shadow, tailrace_shadow)

    rates = [figure for figure in section.figures if figure.name.startswith("copy")]
    assert len(rates) == 2
    for figure in rates:
        assert figure.bar is not None
        assert figure.ours.lowest > 0
        assert figure.peers is not None
        assert figure.peers.lowest > 0
    delays = [figure for figure in section.figures if figure.name.startswith("delay")]
    assert [figure.bar is not None for figure in delays] == [False, False, True, False]
    assert all(0 < figure.ours.lowest < 60_000 for figure in delays)
    assert list(workspace.root.iterdir()) == []


@pytest.mark.parametrize(
    ("numbers", "why"), [([0, 1, 3], "record 3 where 2 was due: lost"), ([0, 1, 1], "record 1 where 2 was due: doubled")]
)
def test_a_copy_that_is_not_the_topic_is_found(workspace: Workspace, numbers: Sequence[int], why: str) -> None:
    with serving(workspace) as server:
        server.create_topic("copy")
        numbering = Numbering(100)
        producer = Producer({"bootstrap.servers": str(server.kafka)})
        for number in numbers:
            producer.produce("copy", numbering.record(0, number), partition=0)
        assert producer.flush(10) == 0
        copy = TargetTopic(server.kafka, "copy", 1)
        with pytest.raises(AuditFailure, match=why):
            copy.check(Load(topic="copy", records=3, record_bytes=100))


def test_without_java_it_is_left_out_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotObtainable, match=r"^java is not installed$"):
        SUBJECTS["shadow"].run(workspace, tmp_path)
