"""The recording proxy does not disturb clients, and keeps one request of each kind."""

from pathlib import Path

import pytest

from tailrace.wire.messages.cluster import API_VERSIONS_API, METADATA_API, ApiVersionsRequest, MetadataRequest
from tests.compat.waiting import eventually
from tests.fuzz.inputs import captured_frames
from tests.support.kafka import RawClient, frame
from tests.support.server import ServerProcess
from tools.record_frames import FrameName, Recorder


def test_one_request_of_each_kind_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    recorder = Recorder(folder)
    recorder.client = "raw"
    address = recorder.listen()
    with ServerProcess(tmp_path / "data", "--advertise", address) as server:
        recorder.forward(server.kafka)
        with RawClient(address) as client:
            for _ in range(2):
                assert client.ask(API_VERSIONS_API, ApiVersionsRequest(), 0).error_code == 0
            (broker,) = client.ask(METADATA_API, MetadataRequest(topics=()), 9).brokers
        assert f"{broker.host}:{broker.port}" == address
        eventually(lambda: len(captured_frames(folder)) == 2)
    recorder.stop()
    kept = {str(each): each.frame for each in captured_frames(folder)}
    assert kept == {
        "raw/ApiVersions-v0": frame(API_VERSIONS_API, 0, ApiVersionsRequest()),
        "raw/Metadata-v9": frame(METADATA_API, 9, MetadataRequest(topics=())),
    }


def test_requests_of_ignored_clients_are_forwarded_and_not_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "frames", ignored_ids=[b"test"])
    recorder.client = "raw"
    address = recorder.listen()
    with ServerProcess(tmp_path / "data") as server, RawClient(address) as refused:
        # The proxy was not told yet where to forward to.
        assert refused.is_closed_by_server()
        recorder.forward(server.kafka)
        with RawClient(address) as client:
            assert client.ask(API_VERSIONS_API, ApiVersionsRequest(), 0).error_code == 0
    recorder.stop()
    assert captured_frames(tmp_path / "frames") == []


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (frame(METADATA_API, 9, MetadataRequest(topics=())), "Metadata-v9"),
        (b"\x7f\x00" + bytes(20), None),
        (b"\x00\x03\x00\x63" + bytes(20), None),
        (b"\x00\x00\x00\x09" + bytes(20), None),
    ],
)
def test_a_frame_is_named_by_api_and_version(sent: bytes, name: str | None) -> None:
    assert FrameName().of(bytes(sent)) == name
