"""Consumers of one group share the partitions of a topic, also with clients of Kafka."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer as KafkaConsumer

from tailrace.client import AsyncTopicConsumer, IllegalGenerationError, TopicConsumer, UnknownMemberError
from tests.support.aio import on_loop
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

QUICK = {"heartbeat_interval": 100, "poll_timeout": 100, "session_timeout": 20_000}


@pytest.fixture
def wide_topic(api: Api) -> str:
    name = f"w{uuid4().hex[:8]}"
    api.create_topic(name, 4)
    return name


def new_group() -> str:
    return f"g{uuid4().hex[:8]}"


def settings(topic: str, group: str, **others: Any) -> dict[str, Any]:
    return {"topic": topic, "group_id": group, **QUICK, **others}


def fill(api: Api, topic: str, count: int, first: int = 0) -> None:
    messages = [{"topic": topic, "value": number, "partition_id": number % 4} for number in range(first, first + count)]
    api.ask("/api/topics/publish", {"messages": messages})


async def poll_until(consumers: list[AsyncTopicConsumer], condition: Callable[[], bool], seen: list[int] | None = None) -> None:
    """All of them poll and mark, each in its own time, until the condition holds: who joins waits for the others' polls."""

    async def go_on(consumer: AsyncTopicConsumer) -> None:
        while not condition():
            for record in await consumer.poll():
                consumer.mark_processed(record)
                if seen is not None:
                    seen.append(record.value)

    await asyncio.gather(*map(go_on, consumers))


def owned(consumer: AsyncTopicConsumer) -> list[int]:
    return sorted(consumer._offsets.assigned)


def test_two_consumers_share_and_one_takes_over_when_the_other_closes(url: str, api: Api, wide_topic: str) -> None:
    fill(api, wide_topic, 40)
    group = new_group()

    @on_loop
    async def scenario() -> None:
        seen: list[int] = []
        first = AsyncTopicConsumer(url, settings(wide_topic, group))
        await poll_until([first], lambda: len(seen) == 40, seen)
        assert owned(first) == [0, 1, 2, 3]
        second = AsyncTopicConsumer(url, settings(wide_topic, group))
        await poll_until([first, second], lambda: len(owned(first)) == len(owned(second)) == 2, seen)
        assert sorted(owned(first) + owned(second)) == [0, 1, 2, 3]
        await asyncio.to_thread(fill, api, wide_topic, 40, 40)
        await poll_until([first, second], lambda: len(seen) == 80, seen)
        await second.close()
        await poll_until([first], lambda: owned(first) == [0, 1, 2, 3], seen)
        await asyncio.to_thread(fill, api, wide_topic, 40, 80)
        await poll_until([first], lambda: len(seen) == 120, seen)
        await first.close()
        assert sorted(seen) == list(range(120))

    scenario()


def test_when_a_consumer_dies_its_partitions_go_to_the_other_from_its_last_commit(url: str, api: Api, wide_topic: str) -> None:
    group = new_group()

    @on_loop
    async def scenario() -> None:
        first = AsyncTopicConsumer(url, settings(wide_topic, group))
        dying = AsyncTopicConsumer(url, settings(wide_topic, group, enable_auto_commit=False, session_timeout=3_000))
        await poll_until([first, dying], lambda: len(owned(first)) == len(owned(dying)) == 2)
        fill(api, wide_topic, 40)
        lost = owned(dying)
        taken: list[int] = []
        while len(taken) < 20:
            taken += [record.value for record in await dying.poll()]
        # It dies without a word: no heartbeats, no goodbye, nothing committed.
        assert dying._heartbeat is not None
        await dying._heartbeat.close()
        await dying._auto_commit.close()
        seen: list[int] = []
        await poll_until([first], lambda: set(lost) <= set(owned(first)) and len(set(seen)) == 40, seen)
        assert set(taken) <= set(seen)
        with pytest.raises((UnknownMemberError, IllegalGenerationError)):
            for number, partition in dying._offsets.assigned.items():
                partition.progress.mark_range(0, 10)
                assert number in lost
            await dying.commit()
        await first.close()
        await dying._transport.close()

    scenario()


def test_a_commit_of_an_older_generation_is_rejected(url: str, api: Api, wide_topic: str) -> None:
    group = new_group()
    fill(api, wide_topic, 8)
    with TopicConsumer(url, settings(wide_topic, group)) as consumer:
        consumer.poll(timeout=30)
        member = api.ask(f"/api/groups/{group}")
        offsets = [{"topic": wide_topic, "partition_id": 0, "offset": 1}]
        stale = {"member_id": member["leader"], "generation": member["generation"] - 1, "offsets": offsets}
        answer = httpx.post(f"{url}/api/groups/{group}/commit", json=stale, timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:tailrace:error:illegal-generation")
        outsider = httpx.post(f"{url}/api/groups/{group}/commit", json={"offsets": offsets}, timeout=PATIENCE_SECONDS)
        assert (outsider.status_code, outsider.json()["type"]) == (409, "urn:tailrace:error:unknown-member")
        good = {**stale, "generation": member["generation"]}
        assert httpx.post(f"{url}/api/groups/{group}/commit", json=good, timeout=PATIENCE_SECONDS).status_code == 204


def test_partitions_that_are_added_later_are_read(url: str, api: Api, topic: str) -> None:
    with TopicConsumer(url, settings(topic, new_group())) as consumer:
        consumer.poll()
        api.ask(f"/api/topics/{topic}", {"partitions": 3}, method="PATCH")
        api.ask("/api/topics/publish", {"messages": [{"topic": topic, "value": 7, "partition_id": 2}]})
        found: list[Any] = []

        def has_come() -> bool:
            found.extend(consumer.poll())
            return bool(found)

        eventually(has_come, "the record of the new partition")
        assert [(record.partition_id, record.value) for record in found] == [(2, 7)]


@pytest.mark.parametrize("kafka_joins_first", [True, False])
def test_a_client_of_kafka_and_a_consumer_are_members_of_one_group(
    shared_server: ServerProcess, api: Api, wide_topic: str, kafka_joins_first: bool
) -> None:
    fill(api, wide_topic, 40)
    group = new_group()
    kafka = KafkaConsumer(
        {
            "bootstrap.servers": shared_server.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 60_000,
            "partition.assignment.strategy": "range",
        }
    )
    ours = TopicConsumer(shared_server.url, settings(wide_topic, group))
    by_kafka: set[int] = set()
    by_us: set[int] = set()
    stop = threading.Event()
    kafkas_share: list[int] = []

    def poll_kafka() -> None:
        kafka.subscribe([wide_topic])
        while not stop.is_set():
            message = kafka.poll(0.05)
            kafkas_share[:] = [partition.partition for partition in kafka.assignment()]
            if message is not None and message.error() is None:
                by_kafka.add(int(message.value() or b""))

    def poll_ours() -> None:
        while not stop.is_set():
            for record in ours.poll():
                ours.mark_processed(record)
                by_us.add(record.value)

    def shares() -> tuple[int, int]:
        return len(kafkas_share), len(ours._offsets.assigned)

    threads = [threading.Thread(target=poll_kafka), threading.Thread(target=poll_ours)]
    try:
        for thread in threads if kafka_joins_first else reversed(threads):
            thread.start()
            eventually(lambda: max(shares()) == 4 or shares() == (2, 2), "the first has all partitions")
        eventually(lambda: shares() == (2, 2), "both have two partitions")
        fill(api, wide_topic, 40, first=40)
        eventually(lambda: by_kafka | by_us >= set(range(80)), "all records are read")
        members = {member["client_id"] for member in api.ask(f"/api/groups/{group}")["members"]}
        assert members == {"rdkafka", "tailrace-python"}
        assert by_kafka & set(range(40, 80))
        assert by_us & set(range(40, 80))
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        kafka.close()
        ours.close()


def test_the_group_goes_on_in_its_generation_when_the_server_restarts(tmp_path: Any) -> None:
    with ServerProcess(tmp_path / "data") as server:
        api = Api(server.url)
        api.create_topic("t")
        port = server.url.rpartition(":")[2]
        group = new_group()
        with TopicConsumer(server.url, settings("t", group, session_timeout=60_000)) as consumer:
            consumer.poll()
            generation = api.ask(f"/api/groups/{group}")["generation"]
            server.kill()
            server.flags = ("--http", f"127.0.0.1:{port}")
            server.start()
            api.ask("/api/topics/publish", {"messages": [{"topic": "t", "value": 1}]})
            (record,) = consumer.poll(timeout=30)
            consumer.mark_processed(record)
            assert [result.committed_offset for result in consumer.commit()] == [1]
            assert api.ask(f"/api/groups/{group}")["generation"] == generation
