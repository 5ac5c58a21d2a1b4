"""Consumer groups of real clients on a real server."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition

from tests.support.consumers import ConsumerProcess
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

PARTITIONS = 12
ALL = set(range(PARTITIONS))
CLIENTS = ("confluent", "kafka-python")
SHORT_SESSION_MS = 2_000
"""The session timeout of members that are killed: short, so that the others wait little. Other sessions survive a pause."""


class Place(NamedTuple):
    """The topic and the group of one test."""

    server: ServerProcess
    admin: AdminClient
    topic: str
    group: str

    def consumer(self, **settings: Any) -> ConsumerProcess:
        return ConsumerProcess(self.server.kafka, self.group, self.topic, **settings)

    def produce(self, per_partition: int = 1) -> None:
        producer = Producer({"bootstrap.servers": self.server.kafka})
        for partition in range(PARTITIONS):
            for number in range(per_partition):
                producer.produce(self.topic, f"{partition}-{number}", partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def generation(self) -> int:
        page = httpx.get(f"{self.server.url}/metrics", timeout=PATIENCE_SECONDS).text
        found = re.search(rf'^tailrace_group_generation{{group="{self.group}"}} (\d+)', page, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def committed(self) -> dict[int, int]:
        found = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])[self.group].result(
            PATIENCE_SECONDS
        )
        return {each.partition: each.offset for each in found.topic_partitions}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("groups")
    config = folder / "tailrace.toml"
    config.write_text("[broker]\ngroup_min_session_ms = 500\n")
    with ServerProcess(folder / "data", "--config", str(config), "--durability", "relaxed") as running:
        # The same port after a restart.
        running.flags = (*running.flags, "--kafka", running.kafka)
        yield running


@pytest.fixture
def place(server: ServerProcess, request: pytest.FixtureRequest) -> Place:
    name = re.sub(r"\W", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    place = Place(server, admin, f"{name}-topic", f"{name}-group")
    admin.create_topics([NewTopic(place.topic, PARTITIONS, 1)])[place.topic].result(PATIENCE_SECONDS)
    return place


def share_all(*consumers: ConsumerProcess) -> bool:
    """Return whether each consumer has partitions, and all together have each partition once."""
    parts = [consumer.owned for consumer in consumers]
    return all(parts) and sum(map(len, parts)) == PARTITIONS and set.union(*parts) == ALL


@pytest.mark.parametrize("client", CLIENTS)
def test_two_consumers_share_a_topic_and_one_takes_over_when_the_other_leaves(place: Place, client: str) -> None:
    with (
        place.consumer(client=client) as one,
        place.consumer(client=client) as other,
    ):
        one.until(lambda: share_all(one, other))
        assert len(one.owned) == len(other.owned) == PARTITIONS // 2
        other.leave()
        one.until(lambda: one.owned == ALL)
        place.produce()
        one.until(lambda: len(one.records) == PARTITIONS)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_consumer_that_is_killed_is_replaced_when_its_session_ends(place: Place, client: str) -> None:
    with (
        place.consumer(client=client) as one,
        place.consumer(client=client, session_ms=SHORT_SESSION_MS) as other,
    ):
        one.until(lambda: share_all(one, other))
        other.kill()
        one.until(lambda: one.owned == ALL)


def test_different_clients_share_a_group(place: Place) -> None:
    with (
        place.consumer(client="confluent", partition__assignment__strategy="range") as one,
        place.consumer(client="kafka-python") as other,
    ):
        one.until(lambda: share_all(one, other))
        place.produce()
        one.until(lambda: len(one.records) + len(other.records) == PARTITIONS)
        assert {partition for partition, _ in one.records} == one.owned


def test_a_cooperative_group_moves_only_what_has_to_move(place: Place) -> None:
    cooperative = {"partition__assignment__strategy": "cooperative-sticky"}
    with place.consumer(**cooperative) as one:
        one.until(lambda: one.owned == ALL)
        with place.consumer(**cooperative) as other:
            one.until(lambda: share_all(one, other))
            revoked = [set(value) for event, value in one.rebalances if event == "revoked" and value]
            assert revoked == [other.owned]
            other.leave()
        one.until(lambda: one.owned == ALL)
        assert [set(value) for event, value in one.rebalances if event == "revoked" and value] == revoked


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(place: Place, strategy: str) -> None:
    def member(name: str) -> ConsumerProcess:
        return place.consumer(group__instance__id=name, partition__assignment__strategy=strategy)

    with member("a") as one:
        with member("b") as other:
            one.until(lambda: share_all(one, other))
            before, share, seen = place.generation(), other.owned, one.rebalances
            other.kill()
        with member("b") as again:
            again.until(lambda: again.owned == share)
            place.produce()
            one.until(lambda: len(one.records) + len(again.records) == PARTITIONS)
            assert place.generation() == before
            assert one.rebalances == seen


@pytest.mark.parametrize(("client", "end"), [("confluent", "kill"), ("confluent", "terminate"), ("kafka-python", "kill")])
def test_a_group_keeps_its_generation_when_the_server_restarts(place: Place, client: str, end: str) -> None:
    with (
        place.consumer(client=client) as one,
        place.consumer(client=client) as other,
    ):
        one.until(lambda: share_all(one, other))
        before, seen = place.generation(), [one.rebalances, other.rebalances]
        getattr(place.server, end)()
        place.server.start()
        place.produce()
        one.until(lambda: len(one.records) + len(other.records) == PARTITIONS)
        for consumer in (one, other):
            consumer.tell("commit")
        one.until(lambda: "committed" in dict(one.events) and "committed" in dict(other.events))
        assert place.generation() == before
        assert [one.rebalances, other.rebalances] == seen


def test_a_member_whose_session_has_ended_can_not_commit(place: Place) -> None:
    place.produce(2)
    with place.consumer(session_ms=SHORT_SESSION_MS) as late:
        late.until(lambda: len(set(late.records)) == 2 * PARTITIONS)
        late.pause()
        late.tell("commit")
        with place.consumer() as other:
            other.until(lambda: len(other.records) == 2 * PARTITIONS)
            place.produce()
            other.until(lambda: len(other.records) == 3 * PARTITIONS)
            other.tell("commit")
            other.until(lambda: other.last("committed") is not None)
            late.resume()
            late.until(lambda: late.last("commit failed") is not None)
            assert late.last("commit failed") in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
            assert place.committed() == dict.fromkeys(ALL, 3)


def test_a_second_client_with_an_instance_id_fences_the_first(place: Place) -> None:
    place.produce()
    with place.consumer(group__instance__id="a") as first:
        first.until(lambda: len(first.records) == PARTITIONS)
        first.pause()
        first.tell("commit")
        with place.consumer(group__instance__id="a") as second:
            second.until(lambda: len(second.records) == PARTITIONS)
            first.resume()
            first.until(lambda: first.last("commit failed") is not None)
            assert first.last("commit failed") in ("FENCED_INSTANCE_ID", "_FENCED", "_FATAL")
            assert place.committed() == {}


def test_records_that_were_read_and_not_committed_are_read_again(place: Place) -> None:
    place.produce(3)
    with place.consumer(session_ms=SHORT_SESSION_MS) as killed:
        killed.until(lambda: len(set(killed.records)) == 3 * PARTITIONS)
        killed.tell("commit")
        killed.until(lambda: killed.last("committed") is not None)
        place.produce(2)
        killed.until(lambda: len(set(killed.records)) == 5 * PARTITIONS)
        killed.kill()
        with place.consumer() as next_one:
            next_one.until(lambda: len(next_one.records) >= 2 * PARTITIONS)
            assert sorted(next_one.records) == [(partition, offset) for partition in range(PARTITIONS) for offset in (3, 4)]


class Worker(threading.Thread):
    """Run a member of a busy group: it reads, and commits its position before it gives up a partition."""

    def __init__(self, place: Place) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._stopping = threading.Event()
        self.is_reading = threading.Event()
        self.read: list[tuple[int, int]] = []
        self.problems: list[str] = []

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._place.server.kafka,
                "group.id": self._place.group,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 100,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._place.topic], on_revoke=self._commit)
        while not self._stopping.is_set():
            message = consumer.poll(0.05)
            if message is not None:
                if message.error():
                    self.problems.append(str(message.error()))
                else:
                    self.read.append((message.partition(), message.offset()))
                    self.is_reading.set()
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _commit(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        reached = [each for each in consumer.position(partitions) if each.offset >= 0]
        if reached:
            try:
                consumer.commit(offsets=reached, asynchronous=False)
            except KafkaException as error:
                self.problems.append(str(error))


def test_each_record_goes_to_one_member_while_ten_come_and_go(place: Place) -> None:
    producing = threading.Event()
    produced = Counter[int]()

    def produce_all_the_time() -> None:
        producer = Producer({"bootstrap.servers": place.server.kafka, "linger.ms": 5})
        while not producing.is_set():
            partition = sum(produced.values()) % PARTITIONS
            producer.produce(place.topic, b"x", partition=partition)
            produced[partition] += 1
            if partition == 0:
                producer.poll(0.005)
        assert producer.flush(PATIENCE_SECONDS) == 0

    source = threading.Thread(target=produce_all_the_time, daemon=True)
    source.start()
    workers: list[Worker] = []
    gone: list[Worker] = []
    for number in range(10):
        workers.append(Worker(place))
        workers[-1].start()
        assert workers[-1].is_reading.wait(PATIENCE_SECONDS)
        if number % 2:
            gone.append(workers.pop(0))
            gone[-1].stop()
    producing.set()
    source.join()
    everything = sorted((partition, offset) for partition, count in produced.items() for offset in range(count))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(len(worker.read) for worker in workers + gone) < len(everything) and time.monotonic() < deadline:
        time.sleep(0.02)
    for worker in workers:
        worker.stop()
    assert [problem for worker in workers + gone for problem in worker.problems] == []
    assert sorted(record for worker in workers + gone for record in worker.read) == everything


def test_admin_tools_see_and_change_groups(place: Place) -> None:
    place.produce(3)
    admin, group, topic = place.admin, place.group, place.topic
    tools = KafkaAdminClient(bootstrap_servers=place.server.kafka)
    with place.consumer() as consumer:
        consumer.until(lambda: len(consumer.records) == 3 * PARTITIONS)
        consumer.tell("commit")
        consumer.until(lambda: consumer.last("committed") is not None)
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_SECONDS)
        assert described.state.name == "STABLE"
        assert {each.partition for member in described.members for each in member.assignment.topic_partitions} == ALL
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
        consumer.leave()
    assert (group, "EMPTY") in [
        (each.group_id, each.state.name) for each in admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
    ]
    back = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, 1) for partition in ALL])
    admin.alter_consumer_group_offsets([back])[group].result(PATIENCE_SECONDS)
    assert place.committed() == dict.fromkeys(ALL, 1)
    tools.delete_group_offsets(group, [PythonTopicPartition(topic, 0)])
    assert place.committed() == dict.fromkeys(ALL - {0}, 1)
    admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
    assert group not in [each.group_id for each in admin.list_consumer_groups().result(PATIENCE_SECONDS).valid]
    tools.close()
