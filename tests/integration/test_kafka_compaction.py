"""Real clients on compacted topics of a real server, which compacts all the time."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tailrace.log.fsck import run_fsck
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SECONDS = 60.0
Read = list[tuple[int, str | None, str | None]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("compaction")
    config = folder / "tailrace.toml"
    config.write_text("[broker]\ncompaction_interval_seconds = 1\ncompaction_roll_seconds = 1\n")
    with ServerProcess(folder / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").replace("]", "")
    make(server, name)
    return name


def make(server: ServerProcess, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    given = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **configs}
    admin.create_topics([NewTopic(name, 1, config=given)])[name].result(SECONDS)


def produce(server: ServerProcess, topic: str, records: list[tuple[str | None, str | None]], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 2, "batch.num.messages": 7, **settings})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(SECONDS) == 0


def read(
    server: ServerProcess, topic: str, offset: int = 0, isolation: str = "read_committed", max_bytes: int = 1_000_000
) -> Read:
    """Return offset, key and value of all records of the topic from an offset on."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.message.max.bytes": max_bytes,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: Read = []
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            key, value = message.key(), message.value()
            found.append((message.offset(), key and key.decode(), value and value.decode()))
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            raise KafkaException(error)
    raise AssertionError(f"{topic} has no end after {SECONDS:g} s; {len(found)} records were read")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_consumer_reads_the_last_value_of_each_key_with_gaps_in_the_offsets(
    server: ServerProcess, topic: str, codec: str
) -> None:
    written: list[tuple[str | None, str | None]] = [(f"k{at * at % 17}", f"{at:030d}") for at in range(2_000)]
    produce(server, topic, written, **{"compression.type": codec})
    produce(server, topic, [("end", "end")])
    last = {key: (offset, key, value) for offset, (key, value) in enumerate(written)}
    wait_for(lambda: len(read(server, topic)) == len(last) + 1)
    left = sorted(last.values())
    assert read(server, topic)[:-1] == left
    for offset in (0, 1, 1_000, left[0][0], left[3][0] + 1, 1_999):
        assert read(server, topic, offset)[:-1] == [each for each in left if each[0] >= offset]
    # A fetch may find batches of which it needs no record.
    assert read(server, topic, left[-2][0] + 1, max_bytes=200)[:-1] == left[-1:]


def test_idempotent_and_transactional_producers_go_on_after_a_compaction(server: ServerProcess, topic: str) -> None:
    idempotent = Producer({"bootstrap.servers": server.kafka, "enable.idempotence": True})
    producer = Producer({"bootstrap.servers": server.kafka, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for turn in range(4):
        for number in range(20):
            idempotent.produce(topic, f"{turn}", f"idempotent {number % 3}")
        assert idempotent.flush(SECONDS) == 0
        for ending, outcome in ((producer.abort_transaction, "aborted"), (producer.commit_transaction, "committed")):
            producer.begin_transaction()
            for number in range(10):
                producer.produce(topic, f"{outcome} {turn}", f"transactional {number % 3}")
            producer.flush(SECONDS)
            ending(SECONDS)
        produce(server, topic, [("end", f"{turn}")])
        wait_for(lambda: len(read(server, topic, isolation="read_uncommitted")) <= 8)
    expected = {
        **{f"idempotent {number}": "3" for number in range(3)},
        **{f"transactional {number}": "committed 3" for number in range(3)},
        "end": "3",
    }
    for isolation in ("read_committed", "read_uncommitted"):
        assert {key: value for _, key, value in read(server, topic, isolation=isolation)} == expected


def test_a_tombstone_removes_its_key_and_then_itself(server: ServerProcess) -> None:
    make(server, "tombstones", **{"delete.retention.ms": "0"})
    produce(server, "tombstones", [("a", "1"), ("b", "1"), ("a", None)])
    produce(server, "tombstones", [("c", "1")])
    wait_for(lambda: [key for _, key, _ in read(server, "tombstones")] == ["b", "a", "c"])
    produce(server, "tombstones", [("d", "1")])
    produce(server, "tombstones", [("e", "1")])
    wait_for(lambda: [key for _, key, _ in read(server, "tombstones")] == ["b", "c", "d", "e"])


def test_a_record_without_a_key_is_refused(server: ServerProcess, topic: str) -> None:
    for idempotent in (False, True):
        producer = Producer({"bootstrap.servers": server.kafka, "enable.idempotence": idempotent})
        errors: list[KafkaError | None] = []
        producer.produce(topic, "no key", on_delivery=lambda error, _, found=errors: found.append(error))
        producer.flush(SECONDS)
        assert errors[0] is not None
        assert errors[0].code() == KafkaError.INVALID_RECORD
    producer = Producer({"bootstrap.servers": server.kafka})
    producer.produce(topic, "a key", "k")
    assert producer.flush(SECONDS) == 0
    for path, body in (
        ("topics/publish", {"messages": [{"topic": topic, "value": "no key"}]}),
        ("sql", {"sql": f"INSERT INTO \"{topic}\" (value) VALUES ('no key')"}),
    ):
        answer = httpx.post(f"{server.url}/api/{path}", json=body)
        assert answer.status_code == 400, answer.text
        assert "takes only records with keys" in answer.text
    assert httpx.post(
        f"{server.url}/api/sql", json={"sql": f"INSERT INTO \"{topic}\" (key, value) VALUES ('k2', 'v')"}
    ).is_success
    assert read(server, topic) == [(0, "k", "a key"), (1, "k2", "v")]


def sql(server: ServerProcess, text: str) -> Any:
    answer = httpx.post(f"{server.url}/api/sql", json={"sql": text})
    assert answer.is_success, answer.text
    return answer.json()


def test_sql_reads_what_is_left(server: ServerProcess, topic: str) -> None:
    written: list[tuple[str | None, str | None]] = [(f"k{at % 5}", str(at)) for at in range(500)]
    produce(server, topic, written)
    produce(server, topic, [("end", "end")])
    wait_for(lambda: len(read(server, topic)) == 6)
    left = [(offset, key, value) for offset, key, value in read(server, topic)]
    rows = sql(server, f'SELECT "offset", key, value FROM "{topic}" ORDER BY "offset"')["rows"]
    assert [tuple(row) for row in rows] == left
    low, high = left[1][0], left[3][0]
    for where in (f'"offset" >= {low} AND "offset" < {high}', f'"offset" = {low}', f'"offset" < {low}'):
        rows = sql(server, f'SELECT "offset" FROM "{topic}" WHERE {where} ORDER BY "offset"')["rows"]
        condition = where.replace('"offset"', "offset").replace("AND", "and").replace(" = ", " == ")
        assert [row[0] for row in rows] == [offset for offset, _, _ in left if eval(condition, {"offset": offset})]  # noqa: S307
    assert sql(server, f'SELECT count(*) FROM "{topic}"')["rows"] == [[6]]


def test_the_configs_are_shown_and_altered_under_their_names(server: ServerProcess) -> None:
    given = {"cleanup.policy": "compact,delete", "delete.retention.ms": "5000", "min.compaction.lag.ms": "2000"}
    make(server, "configured", **given, **{"max.compaction.lag.ms": "60000", "min.cleanable.dirty.ratio": "0.25"})
    admin = AdminClient({"bootstrap.servers": server.kafka})
    resource = ConfigResource(ResourceType.TOPIC, "configured")

    def shown() -> dict[str, str | None]:
        return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(SECONDS).items()}

    wanted = {**given, "max.compaction.lag.ms": "60000", "min.cleanable.dirty.ratio": "0.25"}
    assert {name: shown()[name] for name in wanted} == wanted
    changed = ConfigResource(
        ResourceType.TOPIC,
        "configured",
        incremental_configs=[
            ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("max.compaction.lag.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([changed])[changed].result(SECONDS)
    assert shown()["cleanup.policy"] == "delete"
    assert shown()["max.compaction.lag.ms"] == "9223372036854775807"
    sql(server, "CREATE TOPIC by_sql WITH (cleanup_policy = 'compact', min_dirty_percent = 10)")
    sql(server, "ALTER TOPIC by_sql SET (delete_retention_seconds = 60)")
    rows = sql(
        server,
        "SELECT cleanup_policy, delete_retention_seconds, min_dirty_percent FROM system.topics WHERE name = 'by_sql'",
    )["rows"]
    assert rows == [["compact", 60, 10]]


def test_a_server_that_is_killed_again_and_again_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[broker]\ncompaction_interval_seconds = 1\ncompaction_roll_seconds = 1\n")
    moments = random.Random(58)
    acknowledged: dict[str, int] = {}
    number = 0
    for _ in range(4):
        with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
            if not number:
                make(server, "t")
            producer = Producer({"bootstrap.servers": server.kafka, "enable.idempotence": True, "message.timeout.ms": 60_000})

            def delivered(error: KafkaError | None, message: Any) -> None:
                if error is None:
                    key = message.key().decode()
                    acknowledged[key] = max(acknowledged.get(key, 0), int(message.value()))

            end = time.monotonic() + moments.uniform(2.0, 3.5)
            while time.monotonic() < end:
                number += 1
                producer.produce("t", str(number), f"k{number % 50}", on_delivery=delivered)
                producer.poll(0.001)
            server.kill()
            producer.purge()
            producer.poll(0)
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        found = read(server, "t")
        assert found == sorted(found)
        assert len(found) < number
        last = {key: int(value or 0) for _, key, value in found if key is not None}
        assert {key: last[key] >= value for key, value in acknowledged.items()} == dict.fromkeys(acknowledged, True)
    assert not run_fsck(tmp_path / "data").findings


def test_what_was_compacted_is_so_after_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[broker]\ncompaction_interval_seconds = 1\ncompaction_roll_seconds = 1\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        make(server, "t")
        produce(server, "t", [(f"k{at % 5}", str(at)) for at in range(500)])
        produce(server, "t", [("end", "end")])
        wait_for(lambda: len(read(server, "t")) == 6)
        left = read(server, "t")
    with ServerProcess(tmp_path / "data") as server:
        assert read(server, "t") == left
