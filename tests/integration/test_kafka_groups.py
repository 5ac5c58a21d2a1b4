"""Consumer groups of real clients on a real server."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition

from tests.support.consumers import WAIT_SECONDS, ConsumerProcess
from tests.support.server import ServerProcess

PARTITIONS = 12
ALL = set(range(PARTITIONS))
CLIENTS = ("confluent", "kafka-python")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    config = tmp_path / "tailrace.toml"
    config.write_text("[broker]\ngroup_min_session_ms = 500\n")
    with ServerProcess(tmp_path / "data", "--config", str(config), "--durability", "relaxed") as running:
        admin = AdminClient({"bootstrap.servers": running.kafka})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(10)
        yield running


def produce(server: ServerProcess, per_partition: int = 1) -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for partition in range(PARTITIONS):
        for number in range(per_partition):
            producer.produce("t", f"{partition}-{number}", partition=partition)
    assert producer.flush(10) == 0


def generation(server: ServerProcess, group: str = "g") -> int:
    page = httpx.get(f"{server.url}/metrics").text
    found = re.search(rf'^tailrace_group_generation{{group="{group}"}} (\d+)', page, re.MULTILINE)
    assert found is not None
    return int(found[1])


def share_all(*consumers: ConsumerProcess) -> bool:
    """Each has its part, and together they have everything once."""
    parts = [consumer.owned for consumer in consumers]
    return all(parts) and sum(map(len, parts)) == PARTITIONS and set.union(*parts) == ALL


@pytest.mark.parametrize("client", CLIENTS)
def test_two_consumers_share_a_topic_and_one_takes_over_when_the_other_leaves(server: ServerProcess, client: str) -> None:
    with (
        ConsumerProcess(server.kafka, "g", "t", client=client) as one,
        ConsumerProcess(server.kafka, "g", "t", client=client) as other,
    ):
        one.until(lambda: share_all(one, other))
        assert len(one.owned) == len(other.owned) == PARTITIONS // 2
        other.leave()
        one.until(lambda: one.owned == ALL)
        produce(server)
        one.until(lambda: len(one.records) == PARTITIONS)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_consumer_that_is_killed_is_replaced_when_its_session_ends(server: ServerProcess, client: str) -> None:
    with (
        ConsumerProcess(server.kafka, "g", "t", client=client) as one,
        ConsumerProcess(server.kafka, "g", "t", client=client) as other,
    ):
        one.until(lambda: share_all(one, other))
        other.kill()
        one.until(lambda: one.owned == ALL)


def test_different_clients_share_a_group(server: ServerProcess) -> None:
    with (
        ConsumerProcess(server.kafka, "g", "t", client="confluent", partition__assignment__strategy="range") as one,
        ConsumerProcess(server.kafka, "g", "t", client="kafka-python") as other,
    ):
        one.until(lambda: share_all(one, other))
        produce(server)
        one.until(lambda: len(one.records) + len(other.records) == PARTITIONS)
        assert {partition for partition, _ in one.records} == one.owned


def test_a_cooperative_group_moves_only_what_has_to_move(server: ServerProcess) -> None:
    cooperative = {"partition__assignment__strategy": "cooperative-sticky"}
    with ConsumerProcess(server.kafka, "g", "t", **cooperative) as one:
        one.until(lambda: one.owned == ALL)
        with ConsumerProcess(server.kafka, "g", "t", **cooperative) as other:
            one.until(lambda: share_all(one, other))
            revoked = [set(value) for event, value in one.rebalances if event == "revoked" and value]
            assert revoked == [other.owned]
            other.leave()
        one.until(lambda: one.owned == ALL)
        assert [set(value) for event, value in one.rebalances if event == "revoked" and value] == revoked


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(
    server: ServerProcess, strategy: str
) -> None:
    def member(name: str) -> ConsumerProcess:
        return ConsumerProcess(
            server.kafka, "g", "t", session_ms=6_000, group__instance__id=name, partition__assignment__strategy=strategy
        )

    with member("a") as one:
        with member("b") as other:
            one.until(lambda: share_all(one, other))
            before, share, seen = generation(server), other.owned, one.rebalances
            other.kill()
        with member("b") as again:
            again.until(lambda: again.owned == share)
            produce(server)
            one.until(lambda: len(one.records) + len(again.records) == PARTITIONS)
            assert generation(server) == before
            assert one.rebalances == seen


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_goes_on_in_its_generation_when_the_server_restarts(server: ServerProcess, client: str) -> None:
    with (
        ConsumerProcess(server.kafka, "g", "t", client=client, session_ms=6_000) as one,
        ConsumerProcess(server.kafka, "g", "t", client=client, session_ms=6_000) as other,
    ):
        one.until(lambda: share_all(one, other))
        before, seen = generation(server), [one.rebalances, other.rebalances]
        server.flags = (*server.flags, "--kafka", server.kafka)
        server.kill()
        server.start()
        produce(server)
        one.until(lambda: len(one.records) + len(other.records) == PARTITIONS)
        for consumer in (one, other):
            consumer.tell("commit")
        one.until(lambda: "committed" in dict(one.events) and "committed" in dict(other.events))
        assert generation(server) == before
        assert [one.rebalances, other.rebalances] == seen


def test_a_member_that_comes_back_too_late_can_not_commit(server: ServerProcess) -> None:
    produce(server, 2)
    with ConsumerProcess(server.kafka, "g", "t", session_ms=1_000) as late:
        late.until(lambda: len(late.records) == 2 * PARTITIONS)
        late.pause()
        late.tell("commit")
        with ConsumerProcess(server.kafka, "g", "t", session_ms=1_000) as other:
            other.until(lambda: len(other.records) == 2 * PARTITIONS)
            other.tell("commit")
            other.until(lambda: other.last("committed") is not None)
            produce(server)
            before = committed(server)
            late.resume()
            late.until(lambda: late.last("commit failed") is not None)
            assert late.last("commit failed") in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
            assert committed(server) == before == dict.fromkeys(ALL, 2)


def test_a_second_client_under_a_static_name_fences_the_first(server: ServerProcess) -> None:
    produce(server)
    with ConsumerProcess(server.kafka, "g", "t", session_ms=60_000, group__instance__id="a") as first:
        first.until(lambda: len(first.records) == PARTITIONS)
        first.pause()
        first.tell("commit")
        with ConsumerProcess(server.kafka, "g", "t", session_ms=60_000, group__instance__id="a") as second:
            second.until(lambda: len(second.records) == PARTITIONS)
            first.resume()
            first.until(lambda: first.last("commit failed") is not None)
            assert first.last("commit failed") in ("FENCED_INSTANCE_ID", "_FENCED", "_FATAL")
            assert committed(server) == {}


def test_records_that_were_read_and_not_committed_come_again(server: ServerProcess) -> None:
    produce(server, 3)
    with ConsumerProcess(server.kafka, "g", "t", session_ms=1_000) as killed:
        killed.until(lambda: len(killed.records) == 3 * PARTITIONS)
        killed.tell("commit")
        killed.until(lambda: killed.last("committed") is not None)
        produce(server, 2)
        killed.until(lambda: len(killed.records) == 5 * PARTITIONS)
        killed.kill()
        with ConsumerProcess(server.kafka, "g", "t", session_ms=1_000) as next_one:
            next_one.until(lambda: len(next_one.records) >= 2 * PARTITIONS)
            assert sorted(next_one.records) == [(partition, offset) for partition in range(PARTITIONS) for offset in (3, 4)]


class Worker(threading.Thread):
    """A member of a busy group: reads, and commits what it has read before it gives a partition away."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._stopping = threading.Event()
        self.read: list[tuple[int, int]] = []
        self.problems: list[str] = []

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "g",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 100,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"], on_revoke=self._commit)
        while not self._stopping.is_set():
            message = consumer.poll(0.05)
            if message is not None:
                if message.error():
                    self.problems.append(str(message.error()))
                else:
                    self.read.append((message.partition(), message.offset()))
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


def test_each_record_goes_to_one_member_while_ten_come_and_go(server: ServerProcess) -> None:
    producing = threading.Event()
    produced = Counter[int]()

    def produce_all_the_time() -> None:
        producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 5})
        while not producing.is_set():
            partition = sum(produced.values()) % PARTITIONS
            producer.produce("t", b"x", partition=partition)
            produced[partition] += 1
            if partition == 0:
                producer.poll(0.005)
        assert producer.flush(10) == 0

    source = threading.Thread(target=produce_all_the_time, daemon=True)
    source.start()
    workers: list[Worker] = []
    gone: list[Worker] = []
    for number in range(10):
        workers.append(Worker(server.kafka))
        workers[-1].start()
        time.sleep(0.1)
        if number % 2:
            gone.append(workers.pop(0))
            gone[-1].stop()
    producing.set()
    source.join()
    everything = sorted((partition, offset) for partition, count in produced.items() for offset in range(count))
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(len(worker.read) for worker in workers + gone) < len(everything) and time.monotonic() < deadline:
        time.sleep(0.02)
    for worker in workers:
        worker.stop()
    assert [problem for worker in workers + gone for problem in worker.problems] == []
    assert sorted(record for worker in workers + gone for record in worker.read) == everything
    assert sum(1 for worker in workers + gone if worker.read) > 1


def test_admin_tools_see_and_change_groups(server: ServerProcess) -> None:
    produce(server, 3)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    tools = KafkaAdminClient(bootstrap_servers=server.kafka)
    with ConsumerProcess(server.kafka, "g", "t") as consumer:
        consumer.until(lambda: len(consumer.records) == 3 * PARTITIONS)
        consumer.tell("commit")
        consumer.until(lambda: consumer.last("committed") is not None)
        described = admin.describe_consumer_groups(["g"])["g"].result(10)
        assert described.state.name == "STABLE"
        assert {each.partition for member in described.members for each in member.assignment.topic_partitions} == ALL
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["g"])["g"].result(10)
        consumer.leave()
    assert [(each.group_id, each.state.name) for each in admin.list_consumer_groups().result(10).valid] == [("g", "EMPTY")]
    back = ConsumerGroupTopicPartitions("g", [TopicPartition("t", partition, 1) for partition in ALL])
    admin.alter_consumer_group_offsets([back])["g"].result(10)
    assert committed(server) == dict.fromkeys(ALL, 1)
    tools.delete_group_offsets("g", [PythonTopicPartition("t", 0)])
    assert committed(server) == dict.fromkeys(ALL - {0}, 1)
    admin.delete_consumer_groups(["g"])["g"].result(10)
    assert admin.list_consumer_groups().result(10).valid == []
    tools.close()


def committed(server: ServerProcess) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(10)
    return {each.partition: each.offset for each in found.topic_partitions}
