"""Hostile clients on the Kafka port: each is answered or closed, memory stays flat, and the others notice nothing."""

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.wire.compression import Compression
from tailrace.wire.messages.cluster import (
    API_VERSIONS_API,
    METADATA_API,
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.records import encode_batch as encode_records
from tests.integration.topics import create, metric
from tests.support.batches import encode_batch
from tests.support.eventually import eventually
from tests.support.kafka import RawClient, frame, sized
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

MIB = 1024 * 1024
MESSAGE_TOO_LARGE = 10
GROWTH_BYTES = 40 * MIB
WELL_SECONDS = 20
"""A thousand times what a request takes, and less than a client waits before it retries."""


def is_well(server: ServerProcess) -> bool:
    """Check that a normal client is served within a short time."""
    began = time.monotonic()
    with RawClient(server.kafka) as client:
        assert client.ask(API_VERSIONS_API, ApiVersionsRequest(), 0).error_code == 0
        records = encode_batch([(int(time.time() * 1000), b"well")])
        data = TopicProduceData(name="well", partition_data=(PartitionProduceData(records=records),))
        answer = client.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return time.monotonic() - began < WELL_SECONDS


@contextmanager
def flat_memory(server: ServerProcess) -> Iterator[None]:
    process = psutil.Process(server.pid)
    assert is_well(server)
    before = process.memory_info().rss
    yield
    assert is_well(server)
    assert process.memory_info().rss - before < GROWTH_BYTES
    assert metric(server.url, "tailrace_kafka_unexpected_errors_total") == 0


@pytest.fixture(autouse=True)
def _topic(server: ServerProcess) -> None:
    create(server.url, "well")


def test_garbage_closes_its_own_connection_only(server: ServerProcess) -> None:
    noise = random.Random(7)
    with flat_memory(server):
        for _ in range(200):
            with RawClient(server.kafka) as client:
                client.socket.sendall(noise.randbytes(noise.randrange(8, 5000)))
                client.socket.shutdown(socket.SHUT_WR)
                assert client.is_closed_by_server()


def test_requests_with_a_flipped_byte_are_answered_or_closed(server: ServerProcess) -> None:
    noise = random.Random(11)
    with flat_memory(server):
        for _ in range(300):
            request = frame(METADATA_API, noise.randrange(14), MetadataRequest())
            request[noise.randrange(len(request))] = noise.randrange(256)
            with RawClient(server.kafka) as client:
                client.socket.sendall(sized(request))
                client.socket.shutdown(socket.SHUT_WR)
                while client.socket.recv(65536):
                    pass


@pytest.mark.parametrize("count", [2**31 - 1, 2**28, 16 * MIB])
def test_counts_without_content_cost_nothing(server: ServerProcess, count: int) -> None:
    """A decoder that allocates before it checks would allocate gigabytes."""
    legacy = frame(METADATA_API, 1, MetadataRequest())[:-4] + struct.pack(">i", count)
    with flat_memory(server):
        for _ in range(20):
            with RawClient(server.kafka) as client:
                client.socket.sendall(sized(legacy))
                assert client.is_closed_by_server()


def test_announced_requests_that_never_arrive_hold_no_memory(server: ServerProcess) -> None:
    held = []
    process = psutil.Process(server.pid)
    assert is_well(server)
    before = process.memory_info().rss
    for _ in range(100):
        client = RawClient(server.kafka)
        client.socket.sendall(struct.pack(">i", 16 * MIB) + b"\0" * 100)
        held.append(client)
    eventually(lambda: metric(server.url, "tailrace_kafka_connections") >= 100, "all are there", PATIENCE_SECONDS)
    assert is_well(server)
    assert process.memory_info().rss - before < GROWTH_BYTES
    for client in held:
        client.socket.close()
    eventually(lambda: metric(server.url, "tailrace_kafka_connections") == 0, "all are gone", PATIENCE_SECONDS)
    assert metric(server.url, "tailrace_kafka_held_request_bytes") == 0


def test_a_tls_handshake_is_closed_with_a_log_line(server: ServerProcess) -> None:
    with RawClient(server.kafka) as client:
        client.socket.sendall(b"\x16\x03\x01\x00\xf4\x01")
        assert client.is_closed_by_server()
    assert "127.0.0.1 sent a TLS handshake to the Kafka listener" in server.stderr
    assert is_well(server)


def test_an_http_request_is_answered_with_where_to_go(server: ServerProcess) -> None:
    answer = httpx.get(f"http://{server.kafka}/health")
    assert answer.status_code == 400
    assert "this is the Kafka listener; use the HTTP address" in answer.json()["detail"]
    assert "127.0.0.1 sent an HTTP request to the Kafka listener" in server.stderr
    assert is_well(server)


def test_a_thousand_idle_connections_harm_nobody(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nconnections = 1100\nconnections_per_address = 1100\n")
    with ServerProcess(tmp_path / "roomy", "--config", str(config)) as server:
        create(server.url, "well")
        with flat_memory(server):
            held = [RawClient(server.kafka) for _ in range(1_000)]
            for client in held[::2]:
                client.socket.sendall(b"\0\0")
            assert is_well(server)
            assert metric(server.url, "tailrace_kafka_connections") >= 1_000
            for client in held:
                client.socket.close()


def test_one_address_leaves_connections_for_others(server: ServerProcess) -> None:
    held = [RawClient(server.kafka) for _ in range(DEFAULT_LIMITS.connections_per_address)]
    with RawClient(server.kafka) as late:
        assert late.is_closed_by_server()
    for client in held:
        client.socket.close()
    eventually(lambda: metric(server.url, "tailrace_kafka_connections") == 0, "all are gone", PATIENCE_SECONDS)
    reason = 'tailrace_kafka_connections_closed_total{reason="connections_per_address"}'
    assert metric(server.url, reason) == 1


@pytest.mark.parametrize(
    "codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD], ids=lambda codec: codec.name.lower()
)
def test_a_decompression_bomb_is_rejected(server: ServerProcess, codec: Compression) -> None:
    create(server.url, "unique", settings={"dedup": "content", "max_message_bytes": 4 * MIB})
    create(server.url, "plain", settings={"max_message_bytes": 4 * MIB})
    bomb = encode_records([Record(None, bytes(20 * MIB), (), int(time.time() * 1000))], codec=codec)
    assert len(bomb) < 2 * MIB
    with flat_memory(server), RawClient(server.kafka) as client:
        codes = []
        for topic in ["unique"] * 10 + ["plain"] * 10:
            data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(records=bytes(bomb)),))
            answer = client.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), 9)
            codes.append(answer.responses[0].partition_responses[0].error_code)
        assert codes == [MESSAGE_TOO_LARGE] * 20


def test_a_sender_that_is_too_slow_is_closed(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nrequest_seconds = 1\n")
    with ServerProcess(tmp_path / "slow", "--config", str(config)) as server, RawClient(server.kafka) as client:
        create(server.url, "well")
        client.socket.sendall(struct.pack(">i", 1_000))
        client.socket.settimeout(0.05)
        eventually(lambda: _is_over(client), "the end of the connection", 30.0)
        assert is_well(server)
        assert metric(server.url, 'tailrace_kafka_connections_closed_total{reason="half_frame"}') == 1


def _is_over(client: RawClient) -> bool:
    """Send one more byte and return whether the server has closed the connection."""
    try:
        client.socket.sendall(b"\0")
        return client.socket.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_client_that_never_reads_is_held_back(server: ServerProcess) -> None:
    records = encode_batch([(int(time.time() * 1000), b"x" * 100_000)])
    data = TopicProduceData(name="well", partition_data=(PartitionProduceData(records=records),))
    with RawClient(server.kafka) as client:
        for _ in range(40):
            client.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), 9)
    wanted = MetadataRequestTopic
    topics = tuple(wanted(name=f"none-{number}-{'x' * 200}") for number in range(1000))
    request = sized(frame(METADATA_API, 9, MetadataRequest(topics=topics, allow_auto_topic_creation=False)))
    with flat_memory(server), RawClient(server.kafka, timeout=1) as client:
        sent = 0
        try:
            while sent < 200 * MIB:
                sent += client.socket.send(request)
        except TimeoutError:
            pass
        assert sent < 100 * MIB
        assert is_well(server)
