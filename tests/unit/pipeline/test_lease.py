"""The router takes its lease, reports with it and releases it, in requests that the server can read."""

import threading

import msgspec
import pytest

from tailrace.api.pipelines import ReleaseLeaseBody, ReportBody, ReportResponse, TakeLeaseBody
from tailrace.model.errors import PipelineFencedError
from tailrace.model.pipeline import Lease, PipelineReport
from tailrace.pipeline import lease as lease_module
from tailrace.pipeline.lease import RouterLease
from tests.unit.pipeline.recorded_requests import ADDRESS, RecordingConnection

TAKEN = Lease("router", 7, {"5/0": 12})


def lease_over(
    monkeypatch: pytest.MonkeyPatch, connection: RecordingConnection, *, wait_seconds: float = 0.0, take_over: bool = False
) -> RouterLease:
    monkeypatch.setattr(lease_module, "ServerConnection", lambda *_: connection)
    return RouterLease(ADDRESS, threading.Event(), retry_seconds=0, lease_wait_seconds=wait_seconds, take_over=take_over)


def test_a_lease_is_taken_reported_with_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = RecordingConnection(TAKEN)
    report = PipelineReport(batch=3, batches=4, rows=500)
    with lease_over(monkeypatch, connection) as lease:
        lease.report = report
    taken, reported, released = connection.requests
    assert lease.epoch == TAKEN.epoch
    assert taken[:2] == ("POST", "/api/pipelines/router/lease")
    assert reported == ("POST", "/api/pipelines/router/report", ReportBody(TAKEN.epoch, report))
    assert released == ("POST", "/api/pipelines/router/release", ReleaseLeaseBody(TAKEN.epoch))


def test_the_wanted_latency_comes_with_the_lease_and_with_each_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = RecordingConnection(msgspec.structs.replace(TAKEN, latency="realtime"), ReportResponse("batch"))
    found = []
    with lease_over(monkeypatch, connection) as lease:
        found.append(lease.latency)
    found.append(lease.latency)
    assert found == ["realtime", "batch"]


@pytest.mark.parametrize("take_over", [False, True])
def test_a_lease_is_taken_over_only_if_asked_for(monkeypatch: pytest.MonkeyPatch, take_over: bool) -> None:
    connection = RecordingConnection(TAKEN)
    with lease_over(monkeypatch, connection, take_over=take_over):
        pass
    body = connection.requests[0].body
    assert isinstance(body, TakeLeaseBody)
    assert body.take_over is take_over
    assert body.owner.startswith("process ")


def test_the_lease_of_a_crashed_router_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = RecordingConnection(PipelineFencedError("taken"), PipelineFencedError("taken"), TAKEN)
    with lease_over(monkeypatch, connection, wait_seconds=60.0) as lease:
        assert lease.epoch == TAKEN.epoch
    attempts = [request.body for request in connection.requests if request.path.endswith("/lease")]
    assert attempts == [attempts[0]] * 3


def test_a_lease_that_stays_taken_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = RecordingConnection(PipelineFencedError("taken by another"))
    with pytest.raises(PipelineFencedError, match="taken by another"), lease_over(monkeypatch, connection, wait_seconds=-1.0):
        pass


def test_the_last_report_says_what_ended_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = RecordingConnection(TAKEN)
    with pytest.raises(RuntimeError), lease_over(monkeypatch, connection):
        raise RuntimeError("the disk is gone")
    body = connection.requests[1].body
    assert isinstance(body, ReportBody)
    assert body.report.last_error == "the disk is gone"
