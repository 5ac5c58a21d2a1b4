"""Captures of PostgreSQL are measured at the same changes, and what they lose or double is found.

Tailrace takes Debezium's place here.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.audit import AuditFailure
from bench.capture import memory, snapshot, streaming
from bench.capture.discard import discard_stream
from bench.capture.orders import Orders, running_orders
from bench.capture.side import Capture, ChangeTopic
from bench.capture.tailrace import tailrace_capture
from bench.http.server import HttpServer, serving
from bench.peers.kafka import NotObtainable
from bench.subjects import SUBJECTS
from bench.workspace import Workspace
from tailrace.model.address import Address
from tests.bench.scale import TINY

pytestmark = pytest.mark.long


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, TINY, lambda _: None)


def test_changes_are_measured_beside_another_capture_and_beside_psycopg2(workspace: Workspace) -> None:
    section = streaming.run(workspace, tailrace_capture, tailrace_capture)

    assert [figure.bar is not None for figure in section.figures] == [True, True, False, False, True, False]
    for figure in section.figures[:3]:
        assert figure.ours.lowest > 0
        assert figure.peers is not None
        assert figure.peers.lowest > 0
    assert list(workspace.root.iterdir()) == []


def test_snapshots_are_measured_beside_another_capture_and_beside_copy(workspace: Workspace) -> None:
    section = snapshot.run(workspace, tailrace_capture, tailrace_capture)

    assert all(figure.bar is not None and figure.ours.lowest > 0 for figure in section.figures)
    assert section.figures[1].peers is not None
    assert section.figures[1].peers.lowest > section.figures[1].ours.highest
    assert list(workspace.root.iterdir()) == []


def test_memory_of_all_processes_is_watched(workspace: Workspace) -> None:
    section = memory.run(workspace, tailrace_capture)

    assert [figure.name.split(",")[0] for figure in section.figures] == ["server", "capture of bench"]
    assert all(figure.ours.lowest > 10 for figure in section.figures)


def test_without_java_debezium_is_left_out_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Workspace
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    for subject in ("capture", "capture-snapshot"):
        with pytest.raises(NotObtainable, match=r"^java is not installed$"):
            SUBJECTS[subject].run(workspace, tmp_path)


def test_the_loop_that_discards_receives_everything_once(workspace: Workspace) -> None:
    with running_orders(workspace) as orders:
        orders.create_slot("discard")
        ends = []
        for first in (0, 300):
            ends.append(orders.write_changes(first, 300))
            assert discard_stream(orders, "discard", ends[-1]).seconds > 0
            assert _confirmed(orders, "discard") >= ends[-1]
        assert ends[0] < ends[1]


def _confirmed(orders: Orders, slot: str) -> int:
    query = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    ((lsn,),) = orders.connection.execute(query, [slot]).fetchall()
    return int(lsn)


def test_written_changes_are_inserts_and_updates_in_short_transactions(workspace: Workspace) -> None:
    with running_orders(workspace) as orders:
        orders.write_changes(0, 1_000)
        orders.write_changes(1_000, 1_000)
        ((rows, paid, last, transactions),) = orders.connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE status = 'paid'), max(change), count(DISTINCT xmin::text) FROM orders"
        ).fetchall()
    # An update replaces a row that was inserted.
    assert rows + paid == 2_000
    assert 400 < paid < 800
    assert last == 1_999
    assert 2_000 / 100 <= transactions <= 2_000 / 10


class _Written:
    """A capture whose events the test has written itself."""

    def __init__(self, server: HttpServer, numbers: Sequence[int]) -> None:
        self.name = "written"
        self.kafka: Address = server.kafka
        self.topic = "bench.orders"
        self._server = server
        server.create_topic(self.topic)
        producer = Producer({"bootstrap.servers": str(server.kafka)})
        for number in numbers:
            producer.produce(self.topic, str(number), partition=0)
        assert producer.flush(10) == 0

    @property
    def remarks(self) -> Sequence[str]:
        return []

    @property
    def pids(self) -> Mapping[str, int]:
        return {"server": self._server.pid}

    def prepare(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def begin_snapshot(self, number: int) -> str:
        return self.topic

    def end_snapshot(self, number: int) -> None: ...

    def check(self) -> None: ...

    def read_change(self, value: bytes) -> int:
        return int(value)


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ([0, 1, 3, 4, 5], "at offset 2 is change 3"),
        ([0, 1, 1, 2, 3], "at offset 2 is change 1"),
        ([0, 1, 2, 4, 3], "at offset 3 is change 4"),
        ([0, 1, 2, 3, 4, 4], "the topic has 6 events, and 5 were due"),
    ],
    ids=["lost", "doubled", "out of order", "doubled at the end"],
)
def test_a_change_that_is_not_in_its_place_ends_the_run(workspace: Workspace, numbers: Sequence[int], what: str) -> None:
    with serving(workspace, "relaxed") as server, _reading(_Written(server, numbers)) as topic:
        topic.await_events(0, 5, 10)
        with pytest.raises(AuditFailure, match=what):
            topic.check_changes(0, 5)


def test_rows_of_a_snapshot_may_come_in_any_order_but_each_comes_once(workspace: Workspace) -> None:
    with serving(workspace, "relaxed") as server, _reading(_Written(server, [2, 0, 1, 1])) as topic:
        topic.await_events(0, 4, 10)
        with pytest.raises(AuditFailure, match="1 of 4 changes are lost, such as 3"):
            topic.check_changes_in_any_order(0, 4)
        with pytest.raises(AuditFailure, match="the topic has 4 events, and 3 were due"):
            topic.check_changes_in_any_order(0, 3)


def test_events_that_do_not_come_end_the_run(workspace: Workspace) -> None:
    with (
        serving(workspace, "relaxed") as server,
        _reading(_Written(server, [0, 1])) as topic,
        pytest.raises(AuditFailure, match=r"written: 2 of 3 events were there after 0 s"),
    ):
        topic.await_events(0, 3, 0.1)


@contextmanager
def _reading(capture: Capture) -> Iterator[ChangeTopic]:
    with closing(ChangeTopic(capture, capture.topic)) as topic:
        yield topic
