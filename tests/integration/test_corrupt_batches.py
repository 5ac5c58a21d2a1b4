"""A folder of an earlier version with a batch that can't be decoded: every client gets the hundred good records before it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.client import Client, UnreadableBatchError
from tests.integration.topics import create
from tests.support.bad_batches import BAD_BATCHES, good_batch, store_in_folder
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

GOOD = [b"%d" % number for number in range(100)]
VALUES = [str(number) for number in range(100)]
BAD = BAD_BATCHES["gzip that is cut off"]
"""The one that librdkafka never returns from."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("corrupt") / "data"
    running = ServerProcess(folder)
    with running:
        create(running.url, "t")
        running.terminate()
        store_in_folder(folder, [*(good_batch(value) for value in GOOD), BAD, good_batch(b'"after"')])
        yield running.start()


def ask(server: ServerProcess, path: str, **body: Any) -> tuple[int, Any]:
    answer = httpx.post(server.url + path, json=body, timeout=PATIENCE_SECONDS)
    return answer.status_code, answer.json()


def test_http_consumers_get_them_then_an_error_or_skip_it(server: ServerProcess) -> None:
    status, first = ask(server, "/api/topics/consume", topic="t", limit=1_000)
    assert (status, [message["value"] for message in first["messages"]]) == (200, list(range(100)))
    assert [(each["partition_id"], each["first_offset"], each["last_offset"]) for each in first["corrupt"]] == [(0, 100, 100)]
    status, problem = ask(server, "/api/topics/consume", topic="t", partition_id=0, start=100)
    assert (status, problem["type"], problem["next_offset"]) == (500, "urn:tailrace:error:unreadable-batch", 101)
    assert "offsets 100 to 100 of 't', partition 0" in problem["detail"]
    _, skipping = ask(server, "/api/topics/consume", topic="t", limit=1_000, corrupt_batches="skip")
    assert [message["value"] for message in skipping["messages"]] == [*range(100), "after"]
    assert [each["first_offset"] for each in skipping["corrupt"]] == [100]
    assert ask(server, "/api/topics/consume", topic="t", corrupt_batches="perhaps")[0] == 400


def test_sql_does_the_same(server: ServerProcess) -> None:
    _, consumed = ask(server, "/api/sql", sql="CONSUME FROM t LIMIT 1000")
    assert [row[10] for row in consumed["rows"]] == VALUES
    status, problem = ask(server, "/api/sql", sql="CONSUME FROM t PARTITION 0 FROM OFFSET 100")
    assert (status, problem["next_offset"]) == (500, 101)
    _, skipping = ask(server, "/api/sql", sql="CONSUME FROM t LIMIT 1000 SKIP CORRUPT")
    assert [row[10] for row in skipping["rows"]] == [*VALUES, '"after"']
    assert [each["first_offset"] for each in skipping["corrupt"]] == [100]
    status, problem = ask(server, "/api/sql", sql="SELECT value FROM t")
    assert (status, problem["next_offset"]) == (500, 101)
    _, selected = ask(server, "/api/sql", sql="SELECT count(value) FROM t", corrupt_batches="skip")
    assert (selected["rows"], [each["first_offset"] for each in selected["corrupt"]]) == ([[101]], [100])


def test_queues_do_the_same(server: ServerProcess) -> None:
    path = "/api/queues/workers/receive"
    _, first = ask(server, path, pattern="t", max=1_000)
    assert [each["message"]["value"] for each in first["messages"]] == list(range(100))
    status, problem = ask(server, path, pattern="t", max=1_000)
    assert (status, problem["next_offset"]) == (500, 101)
    _, skipping = ask(server, path, pattern="t", max=1_000, corrupt_batches="skip")
    assert [each["message"]["value"] for each in skipping["messages"]] == ["after"]


def test_the_sdk_consumer_returns_them_before_it_raises_and_skips_by_choice(server: ServerProcess) -> None:
    with Client(server.url) as client:
        with client.consumer(topic="t", group_id="reporting") as consumer:
            assert _polled(consumer, 100) == [*range(100)]
            for _ in ("it", "again"):
                with pytest.raises(UnreadableBatchError, match="offsets 100 to 100 of 't', partition 0"):
                    consumer.poll(5)
            consumer.seek(101)
            assert _polled(consumer, 1) == ["after"]
        with client.consumer(topic="t", group_id="skipping", corrupt_batches="skip") as consumer:
            assert _polled(consumer, 101) == [*range(100), "after"]


def _polled(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        records = consumer.poll(PATIENCE_SECONDS)
        assert records
        found += [record.value for record in records]
        for record in records:
            consumer.mark_processed(record)
    return found


def test_the_sdk_subscriber_and_queue_do_the_same(server: ServerProcess) -> None:
    with Client(server.url) as client:
        reporting = client.subscriber().subscribe("t", cursor="beginning")
        found = []
        with pytest.raises(UnreadableBatchError, match="offsets 100 to 100"), reporting:
            for event in reporting:
                found.append(event.value)  # noqa: PERF401  what came before the error counts
        assert found == [*range(100)]
        with client.subscriber().subscribe("t", cursor="beginning", corrupt_batches="skip") as skipping:
            assert [next(iter(skipping)).value for _ in range(101)] == [*range(100), "after"]
        queue = client.subscriber().subscribe_queue("t", "sdk", max_poll_records=1_000, corrupt_batches="skip")
        with queue as events:
            got = [event.value for event in events.poll(PATIENCE_SECONDS)]
            assert got == [*range(100), "after"]


def _tailrace(server: ServerProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tailrace", *arguments, "--server", server.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def test_the_command_line_prints_them_then_says_what_is_wrong_or_skips_it(server: ServerProcess) -> None:
    reporting = _tailrace(server, "consume", "t", "--format", "value")
    assert reporting.stdout.split() == VALUES
    assert reporting.returncode != 0
    assert "offsets 100 to 100 of 't', partition 0" in reporting.stderr
    skipping = _tailrace(server, "consume", "t", "--format", "value", "--skip-corrupt")
    assert (skipping.returncode, skipping.stdout.split()) == (0, [*VALUES, '"after"'])
    assert "offsets 100 to 100 of t, partition 0, can't be decoded" in skipping.stderr
    tail = _tailrace(server, "tail", "t", "--cursor", "beginning", "--limit", "101", "--format", "value", "--skip-corrupt")
    assert (tail.returncode, tail.stdout.split()) == (0, [*VALUES, '"after"'])
    assert "can't be decoded" in tail.stderr
    tail = _tailrace(server, "tail", "t", "--cursor", "beginning", "--format", "value")
    assert tail.stdout.split() == VALUES
    assert "offsets 100 to 100" in tail.stderr
    selected = _tailrace(server, "sql", "-c", "SELECT count(value) AS n FROM t", "--format", "csv", "--skip-corrupt")
    assert (selected.returncode, selected.stdout.split()) == (0, ["n", "101"])


_LIBRDKAFKA = """
import sys
from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "enable.auto.commit": False, "log_level": 0})
consumer.assign([TopicPartition("t", 0, 0)])
while True:
    message = consumer.poll(1)
    if message is not None and message.error():
        print(message.error().code(), flush=True)
        consumer.seek(TopicPartition("t", 0, 101))
    elif message is not None:
        print(message.value().decode(), flush=True)
        if message.value() == b'"after"':
            consumer.close()
            break
"""


def test_librdkafka_gets_them_then_an_error_and_goes_on_behind_it(server: ServerProcess, tmp_path: Path) -> None:
    # In a process of its own: before a fetch ended at a bad batch, librdkafka looped in it and could not be stopped.
    command = [sys.executable, "-c", _LIBRDKAFKA, server.kafka]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    lines = told.stdout.split()
    assert lines[:100] == VALUES
    assert set(lines[100:-1]) == {"2"}
    assert lines[-1] == '"after"'
