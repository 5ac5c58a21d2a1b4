"""Real clients are held to their quotas, lose nothing by it, and know why they wait."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, ThrottleEvent, TopicPartition

from tailrace.wire.messages.quotas import (
    ALTER_CLIENT_QUOTAS_API,
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    QuotaAlteration,
    QuotaOperation,
)
from tests.integration.security.secured import SecuredServer, secured_server
from tests.support.eventually import eventually
from tests.support.kafka import RawClient
from tests.support.server import ServerProcess

RECORD = bytes(10_000)
RATE = 200_000
SECONDS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("quotas") / "data") as running:
        yield running


def set_quota(server: ServerProcess, client_id: str, **values: float) -> None:
    entry = QuotaAlteration(
        entity=(AlteredQuotaEntity(entity_type="client-id", entity_name=client_id),),
        ops=tuple(QuotaOperation(key=key, value=value) for key, value in values.items()),
    )
    with RawClient(server.kafka) as client:
        (done,) = client.ask(ALTER_CLIENT_QUOTAS_API, AlterClientQuotasRequest(entries=(entry,))).entries
    assert (done.error_code, done.error_message) == (0, None)


def make_topic(server: ServerProcess, name: str) -> None:
    assert httpx.post(f"{server.url}/api/topics", json={"name": name}, timeout=SECONDS).is_success


def test_librdkafka_is_slowed_down_to_its_quota_and_told_so(server: ServerProcess) -> None:
    make_topic(server, "slowed")
    set_quota(server, "greedy", producer_byte_rate=RATE, consumer_byte_rate=RATE)
    throttled: list[ThrottleEvent] = []
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": server.kafka,
            "client.id": "greedy",
            "enable.idempotence": True,
            "batch.size": 50_000,
            "throttle_cb": throttled.append,
        }
    )
    began = time.monotonic()
    for _ in range(80):
        producer.produce("slowed", RECORD, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    seconds = time.monotonic() - began
    assert failed == []
    assert 80 * len(RECORD) / seconds < 2 * RATE
    producer.poll(1)
    assert any(event.throttle_time > 0 for event in throttled)
    read_in = _read(server, "greedy", 80)
    assert 80 * len(RECORD) / read_in < 2 * RATE
    assert _read(server, "modest", 80) < read_in


def _read(server: ServerProcess, client_id: str, records: int) -> float:
    """Read the topic, and return how many seconds it took."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 100_000,
            "queued.max.messages.kbytes": 200,
        }
    )
    began = time.monotonic()
    try:
        consumer.assign([TopicPartition("slowed", 0, 0)])
        seen = 0
        while seen < records:
            assert time.monotonic() - began < SECONDS
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                seen += 1
        return time.monotonic() - began
    finally:
        consumer.close()


def test_kafka_python_waits_for_its_quota_and_loses_nothing(server: ServerProcess) -> None:
    make_topic(server, "requests")
    set_quota(server, "chatty", requests=20)
    producer = kafka.KafkaProducer(bootstrap_servers=server.kafka, client_id="chatty", linger_ms=0)
    began = time.monotonic()
    for number in range(60):
        producer.send("requests", b"%d" % number).get(SECONDS)
    seconds = time.monotonic() - began
    producer.close()
    assert seconds > (60 - 25) / 20 - 0.5
    end = httpx.get(f"{server.url}/api/topics/requests", timeout=SECONDS)
    assert end.is_success


def test_quotas_hold_after_a_restart(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        set_quota(server, "chatty", requests=1)
        server.kill()
        server.start()
        with RawClient(server.kafka) as client:
            began = time.monotonic()
            for _ in range(3):
                client.socket.sendall(_named_request())
                client.receive()
            assert time.monotonic() - began > 0.9
        metric = 'tailrace_quota_throttles_total{quota="requests"}'
        eventually(lambda: f"{metric} 0.0" not in httpx.get(f"{server.url}/metrics", timeout=SECONDS).text, "it is counted")


def _named_request() -> bytes:
    """Return a request of ListGroups of version 0 from the client id `chatty`."""
    body = b"\x00\x10\x00\x00\x00\x00\x00\x07\x00\x06chatty"
    return len(body).to_bytes(4) + body


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("secured-quotas") / "data") as running:
        yield running


@pytest.mark.parametrize("accept", ["application/json", "text/csv", "application/vnd.apache.arrow.stream"])
@pytest.mark.parametrize("path", ["/api/sql", "/api/sql/"])
def test_each_way_to_run_sql_uses_seconds_of_sql(secured: SecuredServer, path: str, accept: str) -> None:
    user = secured.create_user()
    secured.sql(f"ALTER USER {user} SET QUOTA (sql_seconds = 0.0001)")
    query = {"sql": "SELECT sum(i) FROM generate_series(1, 100000) AS s (i)"}
    with secured.client(user) as client:
        client.headers["accept"] = accept
        assert client.post(path, json=query).status_code == 200
        refused = client.post(path, json=query)
        assert refused.status_code == 429
        assert "sql_seconds" in refused.json()["detail"]
        secured.sql(f"ALTER USER {user} RESET QUOTA")
        assert client.post(path, json=query).status_code == 200


def test_a_copy_uses_seconds_of_sql(secured: SecuredServer) -> None:
    secured.sql("CREATE TABLE IF NOT EXISTS app.copied (id int PRIMARY KEY)")
    user = secured.create_user("INSERT ON TABLE app.copied")
    secured.sql(f"ALTER USER {user} SET QUOTA (sql_seconds = 0.0001)")
    with secured.client(user) as client:
        client.headers["content-type"] = "application/vnd.apache.arrow.stream"
        client.post("/api/tables/app.copied/rows", content=b"")
        assert client.post("/api/tables/app.copied/rows", content=b"").status_code == 429


def test_kafkas_clients_are_held_to_quotas_that_sql_has_set(server: ServerProcess) -> None:
    make_topic(server, "by_sql")
    statement = {"sql": "ALTER CLIENT ID 'by sql' SET QUOTA (publish_bytes = '20 KB')"}
    assert httpx.post(f"{server.url}/api/sql", json=statement, timeout=SECONDS).is_success
    throttled: list[ThrottleEvent] = []
    producer = Producer({"bootstrap.servers": server.kafka, "client.id": "by sql", "throttle_cb": throttled.append})
    for _ in range(4):
        producer.produce("by_sql", RECORD)
        assert producer.flush(SECONDS) == 0
    eventually(lambda: producer.poll(0.1) >= 0 and any(event.throttle_time > 0 for event in throttled), "the producer waits")
