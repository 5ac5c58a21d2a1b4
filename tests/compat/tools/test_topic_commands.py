"""Kafka's command line for topics, their configs, offsets and places."""

import json
from pathlib import Path

from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import COMMANDS, tool

SEGMENT_BYTES = str(128 << 20)


@tool(
    COMMANDS,
    "`kafka-topics`: create (with `--replication-factor 3`, configs and assignments), describe, list, add partitions, delete",
    short=True,
)
def test_topics_are_created_described_altered_and_deleted(kafka: CommandLine) -> None:
    wanted = [
        "--partitions",
        "3",
        "--replication-factor",
        "3",
        "--config",
        "cleanup.policy=compact",
        "--config",
        "segment.ms=100",
    ]
    assert kafka.lines("kafka-topics", "--create", "--topic", "made.orders", *wanted) == ["Created topic made.orders."]
    head, *partitions = kafka.lines("kafka-topics", "--describe", "--topic", "made.orders")
    assert head.split("\t")[2:] == ["PartitionCount: 3", "ReplicationFactor: 1", "Configs: cleanup.policy=compact"]
    assert [line.split("\t")[1:5] for line in partitions] == [
        [f"Partition: {number}", "Leader: 0", "Replicas: 0", "Isr: 0"] for number in range(3)
    ]
    assert "TopicExistsException" in kafka.refused("kafka-topics", "--create", "--topic", "made.orders")
    assert kafka.lines("kafka-topics", "--create", "--topic", "made.orders", "--if-not-exists") == []
    kafka.lines("kafka-topics", "--create", "--topic", "made.bills", "--replica-assignment", "0,0")
    assert "only broker is 0" in kafka.refused("kafka-topics", "--create", "--topic", "made.x", "--replica-assignment", "5")

    kafka.lines("kafka-topics", "--alter", "--topic", "made.bills", "--partitions", "5")
    assert "already has 5 partitions" in kafka.refused("kafka-topics", "--alter", "--topic", "made.bills", "--partitions", "2")
    assert len(kafka.lines("kafka-topics", "--describe", "--topic", "made.bills")) == 1 + 5
    overridden = kafka.lines("kafka-topics", "--describe", "--topics-with-overrides")
    assert ["made.orders" in line for line in overridden] == [True]
    assert kafka.lines("kafka-topics", "--describe", "--unavailable-partitions") == []
    assert kafka.lines("kafka-topics", "--describe", "--under-replicated-partitions") == []

    assert kafka.lines("kafka-topics", "--list", "--topic", "made.*") == ["made.bills", "made.orders"]
    kafka.lines("kafka-topics", "--delete", "--topic", "made.*")
    assert kafka.lines("kafka-topics", "--list", "--topic", "made.*") == []
    assert "does not exist" in kafka.refused("kafka-topics", "--describe", "--topic", "made.orders")


@tool(COMMANDS, "`kafka-configs`: of topics; of the broker, groups and client metrics, which are read-only", short=True)
def test_configs_are_set_shown_and_deleted(kafka: CommandLine) -> None:
    kafka.lines("kafka-topics", "--create", "--topic", "configs.orders")

    def shown(*which: str) -> dict[str, str]:
        lines = kafka.lines("kafka-configs", "--describe", *which)
        pairs = [line.split(" sensitive=")[0].partition("=") for line in lines if " sensitive=" in line]
        return {name: value for name, _, value in pairs}

    orders = ("--topic", "configs.orders")
    changes = "retention.ms=3600000,max.message.bytes=2000000,segment.bytes=1048576,cleanup.policy=[compact,delete]"
    kafka.lines("kafka-configs", "--alter", *orders, "--add-config", changes)
    given = {"retention.ms": "3600000", "max.message.bytes": "2000000", "cleanup.policy": "compact,delete"}
    assert shown(*orders) == given
    kafka.lines("kafka-configs", "--alter", *orders, "--delete-config", "cleanup.policy,segment.bytes")
    assert shown(*orders) == {name: given[name] for name in ("retention.ms", "max.message.bytes")}
    everything = shown(*orders, "--all")
    assert (everything["segment.bytes"], everything["cleanup.policy"]) == (SEGMENT_BYTES, "delete")
    assert "nonsense" in kafka.refused("kafka-configs", "--alter", *orders, "--add-config", "nonsense=1")
    assert "min.insync.replicas" in kafka.refused("kafka-configs", "--alter", *orders, "--add-config", "min.insync.replicas=2")

    assert shown("--broker", "0", "--all")["num.partitions"] == "1"
    assert "read-only" in kafka.refused("kafka-configs", "--alter", "--broker", "0", "--add-config", "num.partitions=3")
    kafka.lines("kafka-consumer-groups", "--group", "configs", "--reset-offsets", "--to-earliest", *orders, "--execute")
    assert shown("--group", "configs", "--all")["consumer.session.timeout.ms"] == "45000"
    assert shown("--entity-type", "groups") == {}
    refused = kafka.refused(
        "kafka-configs", "--alter", "--group", "configs", "--add-config", "consumer.session.timeout.ms=50000"
    )
    assert "limits.group_consumer_session_timeout_ms" in refused


@tool(COMMANDS, "`kafka-get-offsets` and `kafka-delete-records`", short=True)
def test_offsets_are_found_and_records_deleted_up_to_them(kafka: CommandLine, tmp_path: Path) -> None:
    topic = ("--topic", "offsets.orders")
    kafka.lines("kafka-topics", "--create", *topic)
    kafka.lines("kafka-console-producer", *topic, given="a\nb\nc\nd\ne\n")

    def offset(time: str) -> int:
        (line,) = kafka.lines("kafka-get-offsets", *topic, "--time", time)
        partition, _, found = line.rpartition(":")
        assert partition == "offsets.orders:0"
        return int(found)

    def delete(before: int) -> str:
        file = tmp_path / "offsets.json"
        wanted = {"topic": "offsets.orders", "partition": 0, "offset": before}
        file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        return "\n".join(kafka.lines("kafka-delete-records", "--offset-json-file", str(file)))

    assert (offset("earliest"), offset("1000"), offset("latest")) == (0, 0, 5)
    assert "low_watermark: 4" in delete(4)
    assert (offset("earliest"), offset("latest")) == (4, 5)
    assert "OffsetOutOfRangeException" in delete(99)
    assert kafka.lines("kafka-console-consumer", *topic, "--from-beginning", "--max-messages", "1") == ["e"]
    assert "low_watermark: 5" in delete(-1)
    assert (offset("earliest"), offset("latest")) == (5, 5)


@tool(COMMANDS, "`kafka-leader-election`, `kafka-reassign-partitions` (generate, execute, verify, cancel, list; throttles)")
def test_partitions_stay_where_they_are(kafka: CommandLine, tmp_path: Path) -> None:
    kafka.lines("kafka-topics", "--create", "--topic", "moved.orders", "--partitions", "2")
    (said,) = kafka.lines(
        "kafka-leader-election", "--election-type", "preferred", "--topic", "moved.orders", "--partition", "1"
    )
    assert said == "Valid replica already elected for partitions moved.orders-1"
    assert kafka.lines("kafka-leader-election", "--election-type", "unclean", "--all-topic-partitions") == []

    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved.orders"}]}))
    said_all = kafka.lines(
        "kafka-reassign-partitions", "--generate", "--broker-list", "0", "--topics-to-move-json-file", str(topics)
    )
    current, proposed = (json.loads(line) for line in said_all if line.startswith("{"))
    assert [each["replicas"] for each in (*current["partitions"], *proposed["partitions"])] == [[0]] * 4
    for name, plan in (("current", current), ("proposed", proposed)):
        (tmp_path / name).write_text(json.dumps(plan))
        file = ("--reassignment-json-file", str(tmp_path / name))
        executed = "\n".join(kafka.lines("kafka-reassign-partitions", "--execute", *file, "--throttle", "1000000"))
        assert "Successfully started partition reassignments for moved.orders-0,moved.orders-1" in executed
        verified = "\n".join(kafka.lines("kafka-reassign-partitions", "--verify", *file))
        assert verified.count("is completed.") == 2
        kafka.lines("kafka-reassign-partitions", "--cancel", *file)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text((tmp_path / "proposed").read_text().replace("[0]", "[7]"))
    refused = kafka.refused("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(elsewhere))
    assert "Unknown broker id 7" in refused
    assert kafka.lines("kafka-reassign-partitions", "--list") == ["No partition reassignments found."]


@tool(COMMANDS, "`kafka-cluster`, `kafka-broker-api-versions`, `kafka-features`, `kafka-log-dirs`, `kafka-acls`")
def test_the_cluster_and_its_sizes_are_described(kafka: CommandLine) -> None:
    (cluster_id,) = kafka.lines("kafka-cluster", "cluster-id")
    assert len(cluster_id.removeprefix("Cluster ID: ")) == 22
    assert kafka.table("kafka-cluster", "list-endpoints")[0]["ID"] == "0"
    versions = "\n".join(kafka.lines("kafka-broker-api-versions"))
    assert "(id: 0 rack: null isFenced: false)" in versions
    assert "ConsumerGroupHeartbeat(68): 0 to 1 [usable: 1]" in versions
    features = "\n".join(kafka.lines("kafka-features", "describe"))
    assert "group.version" in features
    assert "transaction.version was upgraded to 2." in kafka.lines(
        "kafka-features", "upgrade", "--feature", "transaction.version=2"
    )
    assert "levels 2 to 2" in kafka.refused("kafka-features", "downgrade", "--feature", "transaction.version=1")

    kafka.lines("kafka-topics", "--create", "--topic", "sized.orders")
    kafka.lines("kafka-console-producer", "--topic", "sized.orders", given="x" * 5_000 + "\n")
    said = kafka.lines("kafka-log-dirs", "--describe", "--topic-list", "sized.orders")
    described = json.loads(said[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    (partition,) = directory["partitions"]
    assert (partition["partition"], partition["offsetLag"]) == ("sized.orders-0", 0)
    assert 5_000 < partition["size"] < 6_000
    assert "SecurityDisabledException" in kafka.refused("kafka-acls", "--list")
