"""Every comparison with Kafka runs, is checked and gives figures. Tailrace takes Kafka's place here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.audit import AuditFailure
from bench.kafka import footprint, latency, throughput
from bench.kafka.comparison import ComparedServer, check, comparing
from bench.kafka.tasks import Load, Produce, Span
from bench.peers.kafka import NotObtainable
from bench.peers.servers import PeerFailure, PeerProcess, TailracePeer, VoidPeer, answers_kafka, free_address
from bench.subjects import SUBJECTS, BesideKafka
from bench.worker_process import expect
from bench.workspace import Workspace
from tests.bench.scale import TINY

pytestmark = pytest.mark.long

LOAD = Load(topic="audited", records=100, record_bytes=100, partitions=2)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, TINY, lambda _: None)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComparedServer]:
    workspace = Workspace(tmp_path_factory.mktemp("contender"), TINY, lambda _: None)
    with comparing(workspace, TailracePeer, "relaxed") as running:
        yield running


@pytest.mark.parametrize("subject", [throughput.run_synced, latency.run_synced, footprint.run])
def test_every_subject_gives_figures_and_leaves_nothing_behind(subject: BesideKafka, workspace: Workspace) -> None:
    section = subject(workspace, TailracePeer, TailracePeer)

    assert any(figure.bar for figure in section.figures)
    for figure in section.figures:
        assert len(figure.ours.values) == TINY.kafka.rounds
        assert min(figure.ours.values) > 0
        assert figure.peers is None or min(figure.peers.values) > 0
        assert figure.alone is None or min(figure.alone.values) > 0
    assert list(workspace.root.iterdir()) == []


def test_a_client_alone_is_answered_for_every_record(workspace: Workspace) -> None:
    with comparing(workspace, VoidPeer, "fsync") as alone:
        for batch_bytes in (4_000, 1_000_000):
            load = Load(topic="nowhere", records=3_000, record_bytes=1_000, partitions=2, settings={"batch.size": batch_bytes})
            assert expect(Span, alone.sender.ask(Produce(alone.new_topic(load)))).seconds > 0


def test_a_load_that_came_through_passes(compared: ComparedServer) -> None:
    load = compared.new_topic(LOAD)
    compared.sender.ask(Produce(load))

    assert check(compared, load).seconds > 0


def test_records_that_are_there_twice_end_the_run(compared: ComparedServer) -> None:
    load = compared.new_topic(LOAD)
    compared.sender.ask(Produce(load))
    compared.sender.ask(Produce(load))

    with pytest.raises(AuditFailure, match="audited"):
        check(compared, load)


def test_a_server_that_is_gone_does_not_answer(compared: ComparedServer) -> None:
    assert answers_kafka(compared.peer.address)
    assert not answers_kafka(free_address())


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    process = PeerProcess([sys.executable, "-c", "raise SystemExit('no room')"], tmp_path / "said")

    with pytest.raises(PeerFailure, match="ended with code 1: no room"):
        process.start(lambda: False)


def test_without_java_kafka_is_left_out_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Workspace
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotObtainable, match=r"^java is not installed$"):
        SUBJECTS["kafka"].run(workspace, tmp_path)
