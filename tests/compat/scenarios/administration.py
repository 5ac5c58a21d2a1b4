"""Topics, configs and groups as an operator handles them."""

from tests.compat.scenarios.stage import BEGINNING, Scenario, Stage, refusal, values
from tests.compat.waiting import eventually

UNKNOWN_TOPIC = 3
TOPIC_EXISTS = 36
INVALID_CONFIG = 40
NON_EMPTY_GROUP = 68


def list_topics(stage: Stage) -> None:
    stage.create(3)
    eventually(lambda: stage.topic in stage.client.topics())
    assert stage.client.partitions(topic=stage.topic) == 3
    stage.referee.delete_topic(stage.topic)
    eventually(lambda: stage.topic not in stage.client.topics())


def topics(stage: Stage) -> None:
    stage.client.create_topic(topic=stage.topic, partitions=3, configs={"retention.ms": "3600000"})
    eventually(lambda: stage.topic in stage.client.topics())
    assert stage.client.partitions(topic=stage.topic) == 3
    again = refusal(lambda: stage.client.create_topic(topic=stage.topic, partitions=3, configs={}))
    assert again.code == TOPIC_EXISTS, again
    stage.client.delete_topic(topic=stage.topic)
    eventually(lambda: stage.topic not in stage.client.topics())
    gone = refusal(lambda: stage.client.delete_topic(topic=stage.topic))
    assert gone.code == UNKNOWN_TOPIC, gone


def add_partitions(stage: Stage) -> None:
    stage.create(1)
    stage.client.add_partitions(topic=stage.topic, total=3)
    eventually(lambda: stage.client.partitions(topic=stage.topic) == 3)
    stage.fill("in a new one", partition=2)
    assert values(stage.client.read(topic=stage.topic, partition=2, start=BEGINNING, count=1)) == ["in a new one"]


def configs(stage: Stage) -> None:
    stage.create(retention_ms="7200000")
    found = stage.client.topic_configs(topic=stage.topic)
    assert found["retention.ms"] == "7200000"
    assert found["cleanup.policy"] == "delete"
    stage.client.set_topic_config(topic=stage.topic, key="retention.ms", value="3600000")
    assert stage.client.topic_configs(topic=stage.topic)["retention.ms"] == "3600000"
    wrong = refusal(lambda: stage.client.set_topic_config(topic=stage.topic, key="retention.ms", value="soon"))
    assert wrong.code == INVALID_CONFIG, wrong


def delete_records(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    stage.client.delete_records(topic=stage.topic, partition=0, before=4)
    assert values(stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=2)) == ["e", "f"]


def cluster(stage: Stage) -> None:
    assert stage.client.brokers() == 1


def groups(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abc")
    stage.client.join(group=stage.group, topic=stage.topic)
    assert len(stage.client.poll(count=3, seconds=60)) == 3
    stage.client.commit()
    assert stage.group in stage.client.groups()
    assert tuple(stage.client.describe_group(group=stage.group)) == ("stable", 1)
    assert stage.client.group_offsets(group=stage.group, topic=stage.topic) == [(0, 3)]
    stage.client.leave()
    assert tuple(stage.client.describe_group(group=stage.group)) == ("empty", 0)


def delete_groups(stage: Stage) -> None:
    stage.create()
    stage.referee.set_group_offsets(stage.group, stage.topic, [(0, 0)])
    stage.client.delete_group(group=stage.group)
    assert stage.group not in stage.referee.groups()
    stage.fill("a")
    member = stage.another()
    member.join(group=stage.group, topic=stage.topic)
    assert values(member.poll(count=1, seconds=60)) == ["a"]
    busy = refusal(lambda: stage.client.delete_group(group=stage.group))
    assert busy.code == NON_EMPTY_GROUP, busy
    member.leave()


def delete_group_offsets(stage: Stage) -> None:
    stage.create(2)
    stage.referee.set_group_offsets(stage.group, stage.topic, [(0, 0), (1, 0)])
    stage.client.delete_group_offsets(group=stage.group, topic=stage.topic, partitions=[0])
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(1, 0)]


def log_dirs(stage: Stage) -> None:
    stage.create(2)
    stage.fill("x" * 1_000)
    (_, first), (_, second) = sorted(stage.client.log_dir_sizes(topic=stage.topic))
    assert 1_000 <= first < 2_000
    assert second == 0


SCENARIOS = (
    Scenario("list-topics", "List topics and their partitions", "Metadata", list_topics),
    Scenario("topics", "Create and delete topics", "CreateTopics, DeleteTopics", topics),
    Scenario("add-partitions", "Add partitions", "CreatePartitions", add_partitions),
    Scenario("configs", "Describe and alter configs", "DescribeConfigs, IncrementalAlterConfigs, AlterConfigs", configs),
    Scenario("delete-records", "Delete records", "DeleteRecords", delete_records),
    Scenario("cluster", "Describe the cluster", "DescribeCluster, Metadata", cluster),
    Scenario("groups", "List and describe groups and their offsets", "ListGroups, DescribeGroups, OffsetFetch", groups),
    Scenario("delete-groups", "Delete groups", "DeleteGroups", delete_groups),
    Scenario("delete-group-offsets", "Delete a group's offsets", "OffsetDelete", delete_group_offsets),
    Scenario("log-dirs", "Sizes of partitions", "DescribeLogDirs", log_dirs),
)
