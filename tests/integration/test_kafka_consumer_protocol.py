"""Groups of the consumer protocol (KIP-848) with real clients on a real server."""

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.consumers import ConsumerProcess
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

PARTITIONS = 12
ALL = set(range(PARTITIONS))
SESSION_MS = 6_000


class Place(NamedTuple):
    """The topic and the group of one test."""

    server: ServerProcess
    admin: AdminClient
    topic: str
    group: str

    def consumer(self, topic: str | None = None, **settings: Any) -> ConsumerProcess:
        return ConsumerProcess(
            self.server.kafka, self.group, topic or self.topic, session_ms=None, group__protocol="consumer", **settings
        )

    def classic(self, **settings: Any) -> ConsumerProcess:
        return ConsumerProcess(self.server.kafka, self.group, self.topic, **settings)

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_SECONDS)

    def produce(self, per_partition: int = 1, topic: str | None = None, partitions: int = PARTITIONS) -> None:
        producer = Producer({"bootstrap.servers": self.server.kafka})
        for partition in range(partitions):
            for number in range(per_partition):
                producer.produce(topic or self.topic, f"{partition}-{number}", partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def is_stable(self) -> bool:
        """Return whether the server waits for no member any more: none joins again unless something changes."""
        return self.described()["state"] == "Stable"

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.server.url}/api/groups/{self.group}", timeout=PATIENCE_SECONDS).json()
        return found

    def committed(self) -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(self.group)]
        # One of its own: librdkafka may forget a request that it gets while it leaves the address of a server that was killed.
        admin = AdminClient({"bootstrap.servers": self.server.kafka})
        found = admin.list_consumer_group_offsets(asked)[self.group].result(PATIENCE_SECONDS)
        return {each.partition: each.offset for each in found.topic_partitions}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("groups")
    config = folder / "tailrace.toml"
    config.write_text(
        f"[limits]\ngroup_consumer_session_timeout_ms = {SESSION_MS}\ngroup_consumer_heartbeat_interval_ms = 300\n"
    )
    with ServerProcess(folder / "data", "--config", str(config), "--durability", "relaxed") as running:
        # The same port after a restart.
        running.flags = (*running.flags, "--kafka", running.kafka)
        yield running


@pytest.fixture
def place(server: ServerProcess, request: pytest.FixtureRequest) -> Place:
    name = re.sub(r"\W", "-", request.node.name)
    place = Place(server, AdminClient({"bootstrap.servers": server.kafka}), f"{name}-topic", f"{name}-group")
    place.create(place.topic)
    return place


def share_all(*consumers: ConsumerProcess) -> bool:
    """Return whether each consumer has partitions, and all together have each partition once."""
    parts = [consumer.owned for consumer in consumers]
    return all(parts) and sum(map(len, parts)) == PARTITIONS and set.union(*parts) == ALL


def test_members_that_come_and_go_move_only_what_has_to_move(place: Place) -> None:
    with place.consumer() as one:
        one.until(lambda: one.owned == ALL)
        with place.consumer() as two, place.consumer() as three:
            one.until(lambda: share_all(one, two, three))
            assert [len(each.owned) for each in (one, two, three)] == [4, 4, 4]
            assert all(set(value) <= ALL - one.owned for event, value in one.rebalances if event == "revoked")
            place.produce()
            one.until(lambda: sum(len(each.records) for each in (one, two, three)) == PARTITIONS)
            kept = two.owned
            three.leave()
            one.until(lambda: share_all(one, two))
            assert kept <= two.owned
            assert [value for event, value in two.rebalances if event == "revoked" and value] == []


def test_each_record_goes_to_one_member_while_others_join_and_leave(place: Place) -> None:
    with place.consumer() as one:
        one.until(lambda: one.owned == ALL)
        place.produce(5)
        one.until(lambda: len(one.records) == 5 * PARTITIONS)
        one.tell("commit")
        one.until(lambda: one.last("committed") is not None)
        with place.consumer() as two:
            one.until(lambda: share_all(one, two))
            place.produce(5)
            one.until(lambda: len(one.records) + len(two.records) == 10 * PARTITIONS)
            for consumer in (one, two):
                for partition, offset in consumer.records[-5:]:
                    assert partition in consumer.owned
                    assert offset >= 5
            assert len(set(one.records + two.records)) == 10 * PARTITIONS


def test_a_member_that_is_killed_is_replaced_when_its_session_ends(place: Place) -> None:
    with place.consumer() as one, place.consumer() as other:
        one.until(lambda: share_all(one, other))
        other.kill()
        one.until(lambda: one.owned == ALL)
        assert len(place.described()["members"]) == 1


def test_a_member_whose_session_has_ended_joins_again(place: Place) -> None:
    place.produce(2)
    with place.consumer() as late:
        late.until(lambda: len(late.records) == 2 * PARTITIONS)
        late.pause()
        with place.consumer() as other:
            other.until(lambda: len(other.records) == 2 * PARTITIONS)
            other.tell("commit")
            other.until(lambda: other.last("committed") is not None)
            late.resume()
            late.until(lambda: share_all(late, other))
            place.produce()
            late.until(lambda: {(each, 2) for each in ALL} <= {*late.records, *other.records})
            assert {offset for _, offset in other.records} <= {0, 1, 2}


def test_offsets_in_a_transaction_are_those_of_a_member(place: Place) -> None:
    place.produce()
    target = f"{place.topic}-target"
    place.create(target, 1)
    settings = {"bootstrap.servers": place.server.kafka}
    consumer = Consumer(
        {**settings, "group.id": place.group, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    producer = Producer({**settings, "transactional.id": place.group})
    producer.init_transactions(PATIENCE_SECONDS)
    consumer.subscribe([place.topic])
    read = [consumer.poll(PATIENCE_SECONDS) for _ in range(PARTITIONS)]
    producer.begin_transaction()
    for message in read:
        assert message is not None
        producer.produce(target, message.value())
    reached = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(reached, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
    producer.commit_transaction(PATIENCE_SECONDS)
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    assert place.committed() == dict.fromkeys(ALL, 1)
    producer.begin_transaction()
    with place.consumer() as other:
        other.until(lambda: other.owned == ALL)
        with pytest.raises(KafkaException):
            producer.send_offsets_to_transaction(reached, metadata, PATIENCE_SECONDS)
    producer.abort_transaction(PATIENCE_SECONDS)


def test_a_static_member_that_restarts_gets_its_partitions_back_and_the_others_notice_nothing(place: Place) -> None:
    with place.consumer(group__instance__id="a") as one:
        with place.consumer(group__instance__id="b") as other:
            one.until(lambda: share_all(one, other))
            before, share, seen = place.described()["generation"], other.owned, one.rebalances
            other.leave()
        with place.consumer(group__instance__id="b") as again:
            again.until(lambda: again.owned == share)
            place.produce()
            one.until(lambda: len(one.records) + len(again.records) == PARTITIONS)
            assert one.rebalances == seen
            assert place.described()["generation"] == before


def test_a_regular_expression_finds_topics_that_are_made_later(place: Place) -> None:
    with place.consumer(f"^{place.topic}.*") as one:
        one.until(lambda: one.owned == ALL)
        place.produce()
        later = f"{place.topic}-later"
        place.create(later, 1)
        place.produce(1, later, 1)
        one.until(lambda: len(one.records) == PARTITIONS + 1)


def test_a_pattern_is_a_topic_of_the_consumer_protocol_too(place: Place) -> None:
    with place.consumer(f"{place.topic}.>@2") as one, place.consumer(f"{place.topic}.>@2") as other:
        one.until(lambda: sorted((*one.owned, *other.owned)) == [0, 1] and len(one.owned) == 1)
        for name in (f"{place.topic}.a", f"{place.topic}.b"):
            place.create(name, 1)
            place.produce(1, name, 1)
        one.until(lambda: len(one.records) + len(other.records) == 2)


def test_a_topic_is_read_by_its_alias(place: Place) -> None:
    alias = f"{place.topic}-alias"
    changed = httpx.patch(f"{place.server.url}/api/topics/{place.topic}", json={"alias": alias}, timeout=PATIENCE_SECONDS)
    assert changed.status_code == 200, changed.text
    place.produce()
    with place.consumer(alias) as one:
        one.until(lambda: len(one.records) == PARTITIONS)


def test_partitions_that_are_added_are_read(place: Place) -> None:
    # A client that looked for its new partition a moment too early looks again after this time.
    refresh: dict[str, Any] = {"topic__metadata__refresh__interval__ms": 1000}
    with place.consumer(**refresh) as one, place.consumer(**refresh) as other:
        one.until(lambda: share_all(one, other))
        place.admin.create_partitions([NewPartitions(place.topic, PARTITIONS + 2)])[place.topic].result(PATIENCE_SECONDS)
        place.produce(1, partitions=PARTITIONS + 2)
        one.until(lambda: len(one.records) + len(other.records) == PARTITIONS + 2)
        assert one.owned | other.owned == set(range(PARTITIONS + 2))


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_members_go_on_with_their_partitions_when_the_server_restarts(place: Place, end: str) -> None:
    with place.consumer() as one, place.consumer() as other:
        one.until(lambda: share_all(one, other))
        before, seen = place.described()["generation"], [one.rebalances, other.rebalances]
        getattr(place.server, end)()
        place.server.start()
        place.produce()
        one.until(lambda: len(one.records) + len(other.records) == PARTITIONS)
        for consumer in (one, other):
            consumer.tell("commit")
        one.until(lambda: one.last("committed") is not None and other.last("committed") is not None)
        assert place.described()["generation"] == before
        assert [one.rebalances, other.rebalances] == seen
        assert place.committed() == dict.fromkeys(ALL, 1)


def test_a_hand_over_goes_on_after_the_server_was_killed_in_it(place: Place) -> None:
    with place.consumer() as one:
        one.until(lambda: one.owned == ALL)
        with place.consumer() as other:
            one.until(lambda: len(place.described()["members"]) == 2)
            place.server.kill()
            place.server.start()
            one.until(lambda: share_all(one, other))
            place.produce()
            one.until(lambda: len(one.records) + len(other.records) == PARTITIONS)
            assert len(set(one.records + other.records)) == PARTITIONS


def test_what_was_committed_is_not_read_again_when_the_server_and_a_member_were_killed(place: Place) -> None:
    with place.consumer() as one, place.consumer() as other:
        one.until(lambda: share_all(one, other))
        place.produce(3)
        one.until(lambda: len(one.records) + len(other.records) == 3 * PARTITIONS)
        for consumer in (one, other):
            consumer.tell("commit")
        one.until(lambda: one.last("committed") is not None and other.last("committed") is not None)
        place.server.kill()
        place.server.start()
        place.produce(2)
        one.until(lambda: len(one.records) + len(other.records) == 5 * PARTITIONS)
        others = other.owned
        other.kill()
        one.until(lambda: len(one.records) == (len(ALL - others) * 5 + len(others) * 2))
        assert len(set(one.records)) == len(one.records)
        assert {offset for partition, offset in one.records if partition in others} == {3, 4}


def test_a_group_changes_its_protocol_and_keeps_its_offsets_over_a_restart(place: Place) -> None:
    place.produce(2)
    with place.classic() as old:
        old.until(lambda: len(old.records) == 2 * PARTITIONS)
        old.tell("commit")
        old.until(lambda: old.last("committed") is not None)
        old.leave()
    place.produce()
    with place.consumer() as new:
        new.until(lambda: len(new.records) == PARTITIONS)
        assert {offset for _, offset in new.records} == {2}
        new.tell("commit")
        new.until(lambda: new.last("committed") is not None)
        assert place.described()["group_type"] == "consumer"
        new.leave()
    epoch = place.described()["generation"]
    place.server.kill()
    place.server.start()
    place.produce()
    with place.classic() as back:
        back.until(lambda: len(back.records) == PARTITIONS)
        assert {offset for _, offset in back.records} == {3}
        described = place.described()
        assert (described["group_type"], described["generation"] > epoch) == ("classic", True)


CLASSIC_CLIENTS: list[dict[str, Any]] = [
    {"partition__assignment__strategy": "range"},
    {"partition__assignment__strategy": "cooperative-sticky"},
    {"client": "kafka-python"},
    {"client": "aiokafka"},
]


def read_once(*consumers: ConsumerProcess, each: int) -> bool:
    """Return whether so many records of each partition were read. Raises if one was read twice."""
    records = [record for consumer in consumers for record in consumer.records]
    assert len(set(records)) == len(records), sorted(record for record in records if records.count(record) > 1)
    return len(records) == each * PARTITIONS


def commit(*consumers: ConsumerProcess) -> None:
    for consumer in consumers:
        seen = len(consumer.events)
        consumer.tell("commit")
        consumer.until(lambda: any(event == "committed" for event, _ in consumer.events[seen:]))  # noqa: B023


@pytest.mark.parametrize("settings", CLASSIC_CLIENTS, ids=["range", "cooperative-sticky", "kafka-python", "aiokafka"])
def test_a_group_is_upgraded_and_downgraded_member_by_member_over_kills_of_the_server(
    place: Place, settings: dict[str, Any]
) -> None:
    def restart() -> None:
        place.server.kill()
        place.server.start()

    with place.classic(**settings) as one, place.classic(**settings) as two:
        one.until(lambda: share_all(one, two) and place.is_stable())
        place.produce()
        one.until(lambda: read_once(one, two, each=1))
        commit(one, two)
        with place.consumer() as new:
            one.until(lambda: len(place.described()["members"]) == 3)
            restart()
            one.until(lambda: share_all(one, two, new) and place.is_stable())
            assert place.described()["group_type"] == "consumer"
            place.produce()
            one.until(lambda: read_once(one, two, new, each=2))
            commit(one, two, new)
            assert place.committed() == dict.fromkeys(ALL, 2)
            one.leave()
            two.leave()
            new.until(lambda: new.owned == ALL)
            with place.classic(**settings) as back:
                new.until(lambda: share_all(new, back) and place.is_stable())
                restart()
                place.produce()
                new.until(lambda: read_once(one, two, new, back, each=3))
                commit(new, back)
                assert place.committed() == dict.fromkeys(ALL, 3)
                new.leave()
                assert place.described()["group_type"] == "classic"
                restart()
                back.until(lambda: back.owned == ALL and place.is_stable())
                place.produce()
                back.until(lambda: read_once(one, two, new, back, each=4))
                commit(back)
                assert place.committed() == dict.fromkeys(ALL, 4)


@pytest.mark.parametrize("settings", CLASSIC_CLIENTS[:2], ids=["range", "cooperative-sticky"])
def test_a_mixed_group_goes_on_when_members_of_either_protocol_are_killed(place: Place, settings: dict[str, Any]) -> None:
    with (
        place.classic(session_ms=SESSION_MS, **settings) as old,
        place.classic(session_ms=SESSION_MS, **settings) as lost,
        place.consumer() as new,
    ):
        old.until(lambda: share_all(old, lost, new))
        lost.kill()
        old.until(lambda: share_all(old, new))
        new.kill()
        old.until(lambda: old.owned == ALL)
        assert place.described()["group_type"] == "classic"
        place.produce()
        old.until(lambda: len(old.records) == PARTITIONS)


def test_a_static_member_changes_its_protocol_with_its_name(place: Place) -> None:
    with place.classic(group__instance__id="a") as old:
        old.until(lambda: old.owned == ALL)
        with place.consumer(group__instance__id="a") as new:
            new.until(lambda: new.owned == ALL)
            old.until(lambda: ("error", "_FATAL") in old.events or old.owned == set())
            assert len(place.described()["members"]) == 1
            with place.classic(group__instance__id="a") as back:
                back.until(lambda: back.owned == ALL)
                assert place.described()["group_type"] == "classic"


def test_a_client_is_told_when_its_group_can_not_be_upgraded(place: Place) -> None:
    told = {"instance_id": "i", "protocols": [{"name": "mine", "metadata": b64encode(b"no subscription").decode()}]}
    path = f"{place.server.url}/api/groups/{place.group}"
    joined = httpx.post(f"{path}/join", json=told, timeout=PATIENCE_SECONDS)
    assert joined.status_code == 200, joined.text
    consumer = Consumer({"bootstrap.servers": place.server.kafka, "group.id": place.group, "group.protocol": "consumer"})
    consumer.subscribe([place.topic])
    with pytest.raises(KafkaException, match="group id does not exist"):
        for message in iter(lambda: consumer.poll(PATIENCE_SECONDS), None):
            if message.error():
                raise KafkaException(message.error())
    consumer.close()


def test_admin_tools_see_and_change_groups(place: Place) -> None:
    place.produce(3)
    admin, group = place.admin, place.group
    with place.consumer() as consumer:
        consumer.until(lambda: len(consumer.records) == 3 * PARTITIONS)
        consumer.tell("commit")
        consumer.until(lambda: consumer.last("committed") is not None)
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_SECONDS)
        assert (described.state.name, described.type.name) == ("STABLE", "CONSUMER")
        (member,) = described.members
        assert {each.partition for each in member.assignment.topic_partitions} == ALL
        query = f"SELECT state, group_type, members FROM system.groups WHERE group_id = '{group}'"
        asked = httpx.post(f"{place.server.url}/api/sql", json={"sql": query}, timeout=PATIENCE_SECONDS).json()
        assert asked["rows"] == [["Stable", "consumer", 1]]
        listed = {each.group_id: each for each in admin.list_consumer_groups().result(PATIENCE_SECONDS).valid}
        assert (listed[group].type.name, listed[group].state.name) == ("CONSUMER", "STABLE")
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
        consumer.leave()
    assert place.committed() == dict.fromkeys(ALL, 3)
    admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
    assert group not in [each.group_id for each in admin.list_consumer_groups().result(PATIENCE_SECONDS).valid]
