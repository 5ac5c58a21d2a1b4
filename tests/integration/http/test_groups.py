"""Groups over HTTP: consume, ack, describe, reset and delete."""

from itertools import count
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.topics import create, publish
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

_NUMBERS = count()


@pytest.fixture
def topic(url: str) -> str:
    name = f"t{next(_NUMBERS)}"
    create(url, name, partitions=2)
    return name


@pytest.fixture
def group() -> str:
    return f"g{next(_NUMBERS)}"


def send(client: httpx.Client, topic: str, *places: tuple[int, Any]) -> None:
    messages = [{"topic": topic, "partition_id": partition, "value": value} for partition, value in places]
    client.post("/api/topics/publish", json={"messages": messages}).raise_for_status()


def read(client: httpx.Client, topic: str, **fields: object) -> dict[str, Any]:
    answer = client.post("/api/topics/consume", json={"topic": topic, **fields})
    answer.raise_for_status()
    return dict(answer.json())


def values(answer: dict[str, Any]) -> list[Any]:
    return [message["value"] for message in answer["messages"]]


def test_a_group_reads_all_partitions_in_order_until_it_acks(client: httpx.Client, topic: str, group: str) -> None:
    send(client, topic, (0, "a"), (1, "b"), (0, "c"), (1, "d"))
    first = read(client, topic, group_id=group)
    assert sorted(values(first)) == ["a", "b", "c", "d"]
    assert first["next_offset"] is None
    assert values(read(client, topic, group_id=group)) == values(first)
    for path, partition, upto in (("ack", 0, 1), ("commit", 1, 0)):
        answer = client.post(
            f"/api/topics/{path}", json={"topic": topic, "group_id": group, "partition_id": partition, "upto_offset": upto}
        )
        assert answer.json() == {
            "topic_name": topic,
            "group_id": group,
            "partition_id": partition,
            "acknowledged_offset": upto,
            "committed_offset": upto + 1,
        }
    assert values(read(client, topic, group_id=group, start="earliest")) == ["d"]


def test_positions_go_on_where_a_read_has_ended(client: httpx.Client, topic: str) -> None:
    send(client, topic, *((number % 2, number) for number in range(10)))
    seen: list[Any] = []
    fields: dict[str, Any] = {}
    while True:
        answer = read(client, topic, limit=3, **fields)
        seen += values(answer)
        if not answer["has_more"]:
            break
        fields["positions"] = [
            {"partition_id": part["partition_id"], "offset": part["next_offset"]} for part in answer["partitions"]
        ]
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize(
    ("upto", "status", "kind"), [(9, 416, "offset-out-of-range"), (0, 409, "offset-regression"), (-1, 400, "invalid-request")]
)
def test_an_invalid_ack_is_rejected(client: httpx.Client, topic: str, group: str, upto: int, status: int, kind: str) -> None:
    send(client, topic, *((0, number) for number in range(3)))
    ack = {"topic": topic, "group_id": group, "upto_offset": 1}
    client.post("/api/topics/ack", json=ack).raise_for_status()
    answer = client.post("/api/topics/ack", json={**ack, "upto_offset": upto})
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:tailrace:error:{kind}")


def test_a_group_is_described_reset_and_deleted(client: httpx.Client, topic: str, group: str) -> None:
    send(client, topic, *((0, number) for number in range(5)), (1, "x"))
    client.post("/api/topics/ack", json={"topic": topic, "group_id": group, "upto_offset": 1}).raise_for_status()
    shown = client.get(f"/api/groups/{group}").json()
    assert (shown["group_id"], shown["state"], shown["members"], shown["lag"]) == (group, "Empty", [], 3)
    reset = client.put(f"/api/groups/{group}/offsets", json={"topic": topic, "start": "latest"}).json()
    assert reset == {
        "topic_name": topic,
        "partitions": [{"partition_id": 0, "committed_offset": 5}, {"partition_id": 1, "committed_offset": 1}],
    }
    client.put(f"/api/groups/{group}/offsets", json={"topic": topic, "partition_id": 0, "start": 2}).raise_for_status()
    assert client.get(f"/api/groups/{group}/offsets", params={"topic": topic}).json()["offsets"] == [
        {"topic_name": topic, "partition_id": 0, "committed_offset": 2, "end_offset": 5, "lag": 3},
        {"topic_name": topic, "partition_id": 1, "committed_offset": 1, "end_offset": 1, "lag": 0},
    ]
    assert client.delete(f"/api/groups/{group}").status_code == 204
    assert client.get(f"/api/groups/{group}").status_code == 404


def test_lists_come_in_pages(client: httpx.Client, url: str) -> None:
    names = [f"paged.{letter}" for letter in "abcde"]
    for name in names:
        create(url, name)
    seen: list[str] = []
    after = "paged."
    while len(seen) < len(names):
        page = client.get("/api/topics", params={"after": after, "limit": 2}).json()
        seen += [topic["name"] for topic in page["topics"]]
        after = page["next"]
    assert seen[: len(names)] == names
    assert client.get("/api/topics", params={"limit": 1001}).status_code == 400


def test_a_topic_is_changed_described_and_deleted(client: httpx.Client, url: str) -> None:
    create(url, "changing", partitions=1)
    publish(url, "changing", 1, 2, 3)
    changed = client.patch("/api/topics/changing", json={"alias": "other", "partitions": 2, "settings": {"dedup": "id"}}).json()
    assert (changed["alias"], changed["partitions"], changed["settings"]["dedup"]) == ("other", 2, "id")
    assert client.get("/api/topics/other").json() == changed
    parts = client.get("/api/topics/other/partitions").json()["partitions"]
    assert [(part["partition_id"], part["start_offset"], part["end_offset"]) for part in parts] == [(0, 0, 3), (1, 0, 0)]
    assert client.patch("/api/topics/changing", json={"alias": None}).json()["alias"] is None
    assert client.delete("/api/topics/changing").status_code == 204
    assert client.get("/api/topics/changing").status_code == 404


def test_groups_are_shared_with_kafka_clients(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        ServerProcess(tmp_path_factory.mktemp("shared") / "data") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
    ):
        create(server.url, "t")
        publish(server.url, "t", *range(5))
        client.post("/api/topics/ack", json={"topic": "t", "group_id": "g", "upto_offset": 2}).raise_for_status()
        consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "g", "enable.auto.commit": False})
        try:
            (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=20)
            assert committed.offset == 3
            consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
        finally:
            consumer.close()
        assert values(read(client, "t", group_id="g")) == [4]
