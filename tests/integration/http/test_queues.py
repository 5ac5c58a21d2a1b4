"""Queues over HTTP, against a real server that is killed between receive and ack."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.statements import run as sql
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

RECORDS = 200


def ask(client: httpx.Client, path: str, status: int = 200, **body: object) -> Any:
    answer = client.post(f"/api/queues/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def make_topic(client: httpx.Client, name: str, *values: object, **settings: object) -> None:
    client.post("/api/topics", json={"name": name, **settings}).raise_for_status()
    publish(client, name, *values)


def publish(client: httpx.Client, name: str, *values: object) -> None:
    if values:
        messages = [{"topic": name, "value": value, "key": str(value)} for value in values]
        client.post("/api/topics/publish", json={"messages": messages}).raise_for_status()


def values(answer: Any) -> list[object]:
    return [each["message"]["value"] for each in answer["messages"]]


def receipts(answer: Any) -> list[str]:
    return [each["receipt"] for each in answer["messages"]]


def waiting_in(client: httpx.Client, group: str) -> int:
    return sum(each["waiting"] for each in client.get("/api/queues").json()["queues"] if each["group_id"] == group)


def test_a_record_is_received_released_extended_and_acknowledged(client: httpx.Client) -> None:
    make_topic(client, "round.trip", {"id": 1})
    first = ask(client, "trip/receive", pattern="round.*", max=5, consumer="c-1")
    (delivered,) = first["messages"]
    assert delivered["deliveries"] == 1
    assert (delivered["message"]["topic_name"], delivered["message"]["offset"]) == ("round.trip", 0)
    assert ask(client, "trip/receive", pattern="round.*")["messages"] == []
    assert ask(client, "trip/nack", receipts=receipts(first), reason="busy") == {"accepted": 1, "refused": []}
    again = ask(client, "trip/receive", pattern="round.*")
    assert again["messages"][0]["deliveries"] == 2
    assert ask(client, "trip/extend", receipts=receipts(again), visibility_ms=60_000)["accepted"] == 1
    assert ask(client, "trip/ack", receipts=receipts(again))["accepted"] == 1
    (queue,) = [each for each in client.get("/api/queues").json()["queues"] if each["group_id"] == "trip"]
    assert queue["partitions"] == [
        {
            "topic_name": "round.trip",
            "partition_id": 0,
            "start_offset": 1,
            "next_offset": 1,
            "end_offset": 1,
            "in_flight": 0,
            "to_repeat": 0,
            "lag": 0,
        }
    ]


def test_a_late_ack_is_a_problem_that_names_the_receipt(client: httpx.Client) -> None:
    make_topic(client, "late", 1)
    late = ask(client, "late/receive", pattern="late", visibility_ms=50)
    again = ask(client, "late/receive", pattern="late", wait_ms=10_000)
    assert values(again) == [1]
    problem = ask(client, "late/ack", 409, receipts=receipts(late))
    assert problem["type"] == "urn:tailrace:error:late-receipt"
    assert [refusal["receipt"] for refusal in problem["refused"]] == receipts(late)
    assert ask(client, "late/ack", receipts=receipts(again))["accepted"] == 1


def test_a_consumer_waits_for_a_topic_that_does_not_exist_yet(client: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, client, "wait/receive", pattern="later.*", wait_ms=15_000)
        eventually(lambda: waiting_in(client, "wait") == 1, "the consumer waits")
        make_topic(client, "later.topic", "here")
        assert values(waiting.result()) == ["here"]


def test_a_poison_message_is_a_dead_letter_that_can_be_put_back(client: httpx.Client) -> None:
    make_topic(client, "poison", "bad")
    for _ in range(2):
        got = ask(client, "doctors/receive", pattern="poison", max_deliveries=2)
        ask(client, "doctors/nack", receipts=receipts(got), reason="no cure")
    assert ask(client, "doctors/receive", pattern="poison")["messages"] == []
    letters = sql(client, "SELECT value, headers ->> 'dead_letter_cause', headers ->> 'origin_offset' FROM poison.dead_letters")
    assert letters["rows"] == [['"bad"', "no cure", "0"]]
    assert sql(client, "REDRIVE DEAD LETTERS OF poison")["rows"] == [["poison", 1, 0]]
    (back,) = ask(client, "doctors/receive", pattern="poison")["messages"]
    assert (back["message"]["value"], back["deliveries"]) == ("bad", 1)
    shown = sql(
        client, "SELECT topic, next_offset, in_flight, lag, max_deliveries FROM system.queues WHERE group_id = 'doctors'"
    )
    assert shown["rows"] == [["poison", 2, 1, 1, 2]]


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("g/receive", {}, 400, "invalid-request"),
        ("g/receive", {"pattern": "a..b"}, 400, "invalid-pattern"),
        ("g/receive", {"pattern": "a", "max": 0}, 400, "invalid-request"),
        ("g/receive", {"pattern": "a", "max": 1_001}, 400, "limit-exceeded"),
        ("g/receive", {"pattern": "a", "visibility_ms": 10**12}, 400, "limit-exceeded"),
        ("nobody/ack", {"receipts": ["x"]}, 404, "unknown-group"),
        ("nobody/ack", {"receipts": []}, 400, "limit-exceeded"),
    ],
)
def test_invalid_requests_are_problems(
    client: httpx.Client, path: str, body: dict[str, object], status: int, kind: str
) -> None:
    assert ask(client, path, status, **body)["type"] == f"urn:tailrace:error:{kind}"


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def test_a_kill_between_receive_and_ack_loses_no_record_and_no_ack(killable: ServerProcess) -> None:
    """Each round some are acknowledged, some are only received, and the server is killed."""
    done: list[object] = []
    with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:
        make_topic(client, "jobs", *range(RECORDS), partitions=3)
    for _ in range(2):
        with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:
            got = ask(client, "workers/receive", pattern="jobs", max=40, max_deliveries=100)
            part = receipts(got)[::2]
            assert ask(client, "workers/ack", receipts=part)["accepted"] == len(part)
            done += values(got)[::2]
        killable.kill()
        killable.start()
        with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:
            ask(client, "workers/ack", 409, receipts=receipts(got)[1::2])
    with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:
        while (got := ask(client, "workers/receive", pattern="jobs", max=50))["messages"]:
            done += values(got)
            ask(client, "workers/ack", receipts=receipts(got))
    assert sorted(done, key=int) == list(range(RECORDS))  # type: ignore[arg-type]


def test_a_record_that_kills_the_server_each_time_becomes_a_dead_letter(killable: ServerProcess) -> None:
    with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:
        make_topic(client, "jobs", "poison")
    for expected in (1, 2):
        with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:
            (got,) = ask(client, "workers/receive", pattern="jobs", max_deliveries=2)["messages"]
            assert got["deliveries"] == expected
            # The consumer does not wait until the count is written; this commit comes after it in the log.
            publish(client, "jobs", "later")
        killable.kill()
        killable.start()
    with httpx.Client(base_url=killable.url, timeout=PATIENCE_SECONDS) as client:

        def letters() -> int:
            answer = client.post("/api/topics/consume", json={"topic": "jobs.dead_letters"})
            return len(answer.json()["messages"]) if answer.status_code == 200 else 0

        eventually(lambda: letters() == 1, "the record is a dead letter")
        got = ask(client, "workers/receive", pattern="jobs", max=10)
        assert values(got) == ["later", "later"]
