"""Kafka, HTTP, CONSUME and SELECT give the same records for the same range, whoever wrote them."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.statements import rows, run
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SECONDS = 30


class Seen(NamedTuple):
    """A record as every surface can show it: bytes that are no text as SQL shows them."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: dict[str, Any]


def text_of(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"\\x{data.hex()}"


def headers_of(pairs: list[tuple[str, str | None]]) -> dict[str, Any]:
    found: dict[str, list[str | None]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: held if len(held) > 1 else held[0] for name, held in found.items()}


def milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def by_kafka(server: ServerProcess, _: httpx.Client, topic: str, partition: int, start: int, count: int) -> list[Seen]:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "unused", "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, start)])
    seen: list[Seen] = []
    try:
        while len(seen) < count:
            for message in consumer.consume(count - len(seen), SECONDS):
                assert message.error() is None
                pairs = [(name, text_of(value)) for name, value in message.headers() or ()]
                key, value = text_of(message.key()), text_of(message.value())
                seen.append(Seen(partition, message.offset(), message.timestamp()[1], key, value, headers_of(pairs)))
    finally:
        consumer.close()
    return seen


def by_http(_: ServerProcess, client: httpx.Client, topic: str, partition: int, start: int, count: int) -> list[Seen]:
    body = {"topic": topic, "partition_id": partition, "start": start, "limit": count}
    answer = client.post("/api/topics/consume", json=body)
    assert answer.status_code == 200, answer.text
    seen = []
    for message, raw in zip(answer.json()["messages"], _raw_values(answer.text), strict=True):
        pairs = [(header["name"], _shown(header, "value")) for header in message.get("headers", ())]
        if message.get("message_id") is not None:
            pairs.append(("message_id", message["message_id"]))
        value = raw if "value" in message else _shown(message, "value")
        seen.append(
            Seen(partition, message["offset"], message["timestamp_ms"], _shown(message, "key"), value, headers_of(pairs))
        )
    return seen


def by_consume(_: ServerProcess, client: httpx.Client, topic: str, partition: int, start: int, count: int) -> list[Seen]:
    found = rows(client, f"CONSUME FROM {topic} PARTITION {partition} FROM OFFSET {start} LIMIT {count}")
    return [
        Seen(row["partition"], row["offset"], milliseconds(row["timestamp"]), row["key"], row["value"], row["headers"])
        for row in found
    ]


def by_select(_: ServerProcess, client: httpx.Client, topic: str, partition: int, start: int, count: int) -> list[Seen]:
    found = rows(
        client,
        f'SELECT partition, "offset", timestamp, key, value, headers FROM {topic}'
        ' WHERE partition = :partition AND "offset" >= :start AND "offset" < :end ORDER BY "offset"',
        {"partition": partition, "start": start, "end": start + count},
    )
    seen = []
    for row in found:
        headers = row["headers"]
        pairs = json.loads(headers, object_pairs_hook=list) if isinstance(headers, str) else list(headers.items())
        seen.append(
            Seen(
                row["partition"],
                row["offset"],
                milliseconds(row["timestamp"]),
                row["key"],
                row["value"],
                headers_of([(name, value) for name, value in pairs]),
            )
        )
    return seen


Read = Callable[[ServerProcess, httpx.Client, str, int, int, int], list[Seen]]
SURFACES: dict[str, Read] = {"HTTP": by_http, "CONSUME": by_consume, "SELECT": by_select}


def _shown(message: dict[str, Any], field: str) -> str | None:
    if f"{field}_base64" in message:
        return text_of(b64decode(message[f"{field}_base64"]))
    held: str | None = message.get(field)
    return held


def _raw_values(answer: str) -> list[str | None]:
    """The JSON values as they are written in the answer; spaces in them count."""
    raw = json.JSONDecoder()
    values: list[str | None] = []
    for message in answer.split('{"topic_name":')[1:]:
        head, found, rest = message.partition('"value":')
        if not found or head.count('"headers":'):
            values.append(None)
            continue
        _, end = raw.raw_decode(rest)
        written = rest[:end]
        values.append(None if written == "null" else written)
    return values


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("surfaces") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def filled(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        fill(server, client)
        yield client


def fill(server: ServerProcess, client: httpx.Client) -> None:
    run(client, "CREATE TOPIC app.mixed PARTITIONS 2; CREATE TABLE app.rows (id INTEGER PRIMARY KEY, body TEXT)")
    producer = Producer({"bootstrap.servers": server.kafka, "log_level": 0, "compression.type": "zstd"})
    for number in range(40):
        producer.produce(
            "app.mixed",
            key=b"k%d" % number if number % 3 else None,
            value=(None, b"\xff\x00%d" % number, b'{"n": %d}' % number, "größe".encode())[number % 4],
            partition=number % 2,
            timestamp=1_700_000_000_000 + number,
            headers=[("a", b"1"), ("b", None)] if number % 5 == 0 else [],
        )
    assert producer.flush(SECONDS) == 0
    messages = [
        {"topic": "app.mixed", "partition_id": 0, "value": {"from": "http"}, "headers": [{"name": "h", "value": "x"}]},
        {"topic": "app.mixed", "partition_id": 1, "value_base64": "/wD/", "key_base64": "/w=="},
    ]
    client.post("/api/topics/publish", json={"messages": messages}).raise_for_status()
    run(
        client,
        "INSERT INTO app.mixed (partition, key, value, headers) VALUES (?, ?, ?, ?)",
        [[number % 2, f"s{number}", {"n": number}, {"h": "y"}] for number in range(10)],
    )
    run(client, "INSERT INTO app.rows VALUES (1, 'a'), (2, 'ü'); UPDATE app.rows SET body = 'c'; DELETE FROM app.rows")
    fill_with_payloads(client)


def fill_with_payloads(client: httpx.Client) -> None:
    """Values that are kept beside the log, by every way that makes such, between others."""
    run(client, "CREATE TOPIC app.large; CREATE TABLE app.notes (id INTEGER PRIMARY KEY)")
    large = "ü" * 80_000
    messages = [{"topic": "app.large", "value": value, "headers": [{"name": "h", "value": "x"}]} for value in ("a", large, "b")]
    client.post("/api/topics/publish", json={"messages": messages}).raise_for_status()
    run(client, "INSERT INTO app.large (key, value) VALUES (?, ?)", [["k", {"large": large}], ["l", "small"]])
    run(client, f"BEGIN; INSERT INTO app.notes VALUES (1); INSERT INTO app.large (value) VALUES ('{large[:60_000]}'); COMMIT")


@pytest.mark.timeout(180)
def test_every_surface_gives_the_same_records(server: ServerProcess, filled: httpx.Client) -> None:
    ranges = [("app.mixed", 0, 0, 26), ("app.mixed", 1, 0, 26), ("app.mixed", 1, 7, 11), ("app.rows", 0, 0, 6)]
    ranges += [("app.large", 0, 0, 6), ("app.large", 0, 3, 1)]
    for topic, partition, start, count in ranges:
        written = by_kafka(server, filled, topic, partition, start, count)
        assert [record.offset for record in written] == list(range(start, start + count))
        topic = f"_changes.{topic}" if topic == "app.rows" else topic
        for surface, read in SURFACES.items():
            assert read(server, filled, topic, partition, start, count) == written, (surface, topic, partition)


def test_large_values_are_kept_beside_the_log(server: ServerProcess, filled: httpx.Client) -> None:
    assert len(list((server.folder / "payloads").iterdir())) == 3
    assert rows(filled, "SELECT max(length(value)) AS longest FROM app.large") == [{"longest": 80_012}]


def test_cursors_are_the_same_everywhere(filled: httpx.Client) -> None:
    consumed = rows(filled, "CONSUME FROM app.mixed LIMIT 1000")
    selected = rows(filled, 'SELECT partition, "offset", cursor FROM app.mixed ORDER BY cursor')
    answer = filled.post("/api/topics/consume", json={"topic": "app.mixed", "limit": 1000})
    over_http = [
        {"partition": record["partition_id"], "offset": record["offset"], "cursor": record["cursor"]}
        for record in answer.json()["messages"]
    ]
    placed = [{name: row[name] for name in ("partition", "offset", "cursor")} for row in consumed]
    assert len(placed) == 52
    assert [record["cursor"] for record in placed] == sorted({record["cursor"] for record in placed})
    assert selected == placed
    assert sorted(over_http, key=lambda record: int(record["cursor"])) == placed
