"""The table of scenarios: each is written once, in the words of the contract, and played by every client that has them.

A scenario prepares its topic by the referee, a client that is known to work, so that what fails is what the scenario is about.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.compat.contract import ILLEGAL_GENERATION, MISSING, Bounds, Client, Codec, Incoming, Outgoing, Refused, Start
from tests.compat.process import ClientProcess
from tests.compat.waiting import eventually

PARTITIONS = 4
HOUR_MS = 3_600_000
SOME_TIME_MS = 1_700_000_000_000
SHORT_SESSION_MS = 1_500

UNKNOWN_TOPIC = 3
MESSAGE_TOO_LARGE = 10
UNKNOWN_MEMBER = 25
REBALANCE_IN_PROGRESS = 27
TOPIC_EXISTS = 36
INVALID_CONFIG = 40
PRODUCER_FENCED = 90
INVALID_PRODUCER_EPOCH = 47
NON_EMPTY_GROUP = 68

BEGINNING = Start("beginning")


class Stage(NamedTuple):
    """What a scenario plays on. Names of topics and groups are used by no other scenario."""

    client: ClientProcess
    """The client under test."""
    another: Callable[[], ClientProcess]
    """One more of the same."""
    referee: Client
    topic: str
    group: str
    volume: int
    """How many records make a lot of them."""
    members: int
    """How many consumers make a crowd."""

    def create(self, partitions: int = 1, **configs: str) -> None:
        self.referee.create_topic(self.topic, partitions, {name.replace("_", "."): value for name, value in configs.items()})

    def fill(self, *values: str, partition: int = 0) -> None:
        self.referee.produce(self.topic, [Outgoing(value=value.encode(), partition=partition) for value in values])

    def fill_hourly(self, count: int) -> None:
        """Record `n` is `n` hours younger than the first."""
        self.referee.produce(
            self.topic,
            [
                Outgoing(value=str(number).encode(), partition=0, timestamp_ms=SOME_TIME_MS + number * HOUR_MS)
                for number in range(count)
            ],
        )


class Scenario(NamedTuple):
    name: str
    title: str
    apis: str
    play: Callable[[Stage], None]
    transactional: bool = False


def values(records: list[Incoming]) -> list[str]:
    return ["" if each.value is None else each.value.decode() for each in records]


def refusal(act: Callable[[], object]) -> Refused:
    try:
        act()
    except Refused as refused:
        return refused
    raise AssertionError("it was not refused")


def keyed(stage: Stage) -> None:
    stage.create(PARTITIONS)
    sent = [Outgoing(f"key {number % 7}".encode(), f"value {number}".encode()) for number in range(70)]
    stage.client.produce(topic=stage.topic, records=sent)
    counts = [stage.referee.bounds(stage.topic, partition).latest for partition in range(PARTITIONS)]
    read = [
        stage.client.read(topic=stage.topic, partition=partition, start=BEGINNING, count=count)
        for partition, count in enumerate(counts)
        if count
    ]
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for record in sent:
        by_key.setdefault(record.key, []).append(record.value)
    for key, expected in by_key.items():
        homes = [[record.value for record in records if record.key == key] for records in read]
        assert [home for home in homes if home] == [expected]
    assert len(read) > 1


def headers(stage: Stage) -> None:
    stage.create()
    sent = [("a", b"1"), ("a", b"2"), ("none", None), ("bytes", bytes(range(256))), ("empty", b"")]
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", b"v", sent, 0), Outgoing(b"k", b"v", [], 0)])
    first, second = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=2)
    assert first.headers == sent
    assert second.headers == []


def text_headers(stage: Stage) -> None:
    stage.create()
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", b"v", [("a", b"1"), ("b", b"two words")], 0)])
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.headers == [("a", b"1"), ("b", b"two words")]


def nulls(stage: Stage) -> None:
    stage.create()
    sent: list[tuple[bytes | None, bytes | None]] = [(b"gone", None), (None, b"no key"), (b"k", b"v")]
    stage.client.produce(topic=stage.topic, records=[Outgoing(key, value, [], 0) for key, value in sent])
    read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=len(sent))
    assert [(each.key, each.value) for each in read] == sent


def every_byte(stage: Stage) -> None:
    stage.create()
    sent = [(bytes(range(256)), bytes(range(255, -1, -1))), (b"", b"")]
    stage.client.produce(topic=stage.topic, records=[Outgoing(key, value, [], 0) for key, value in sent])
    read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=len(sent))
    assert [(each.key, each.value) for each in read] == sent


def timestamps(stage: Stage) -> None:
    stage.create()
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", b"v", [], 0, SOME_TIME_MS)])
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.timestamp_ms == SOME_TIME_MS


def through(codec: Codec) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.create()
        sent = [
            (f"{number}".encode(), f"{number} {number * 7919 % 104729:x} ".encode() * (1 + number % 5))
            for number in range(stage.volume)
        ]
        for part in (sent[:40], sent[40:]):
            stage.client.produce(topic=stage.topic, records=[Outgoing(key, value, [], 0) for key, value in part], codec=codec)
        read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=len(sent))
        assert [each.offset for each in read] == list(range(len(sent)))
        assert [(each.key, each.value) for each in read] == sent

    return play


def idempotent(stage: Stage) -> None:
    stage.create()
    sent = [f"{number}" for number in range(500)]
    stage.client.produce_idempotent(topic=stage.topic, records=[Outgoing(value=value.encode(), partition=0) for value in sent])
    assert values(stage.referee.read(stage.topic, 0, BEGINNING, len(sent))) == sent
    assert stage.referee.bounds(stage.topic, 0).latest == len(sent)


def one_megabyte(stage: Stage) -> None:
    stage.create()
    large = bytes(range(3, 253)) * 3_990
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", large, [], 0)])
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.value == large


def too_large(stage: Stage) -> None:
    stage.create()
    large = b"x" * 2_000_000
    refused = refusal(
        lambda: stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", large, [], 0)], max_bytes=4_000_000)
    )
    assert refused.code == MESSAGE_TOO_LARGE, refused
    assert stage.referee.bounds(stage.topic, 0) == Bounds(0, 0)


def larger_topic(stage: Stage) -> None:
    stage.create(max_message_bytes="12000000")
    large = bytes(range(3, 253)) * 40_000
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", large, [], 0)], max_bytes=12_000_000)
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.value == large


def seek_offset(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    assert values(stage.client.read(topic=stage.topic, partition=0, start=Start("offset", 2), count=3)) == ["c", "d", "e"]


def seek_time(stage: Stage) -> None:
    stage.create()
    stage.fill_hourly(6)
    start = Start("time", SOME_TIME_MS + 2 * HOUR_MS + 1)
    assert values(stage.client.read(topic=stage.topic, partition=0, start=start, count=3)) == ["3", "4", "5"]


def seek_ends(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    stage.referee.delete_records(stage.topic, 0, 2)
    assert stage.client.position(topic=stage.topic, partition=0, start=BEGINNING) == 2
    assert stage.client.position(topic=stage.topic, partition=0, start=Start("end")) == 6


def offsets_by_time(stage: Stage) -> None:
    stage.create()
    stage.fill_hourly(6)
    asked = stage.client.offset_for_time
    assert asked(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 2 * HOUR_MS) == 2
    assert asked(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 2 * HOUR_MS + 1) == 3
    assert asked(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 9 * HOUR_MS) == MISSING


def list_offsets(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    stage.referee.delete_records(stage.topic, 0, 4)
    assert stage.client.bounds(topic=stage.topic, partition=0) == Bounds(4, 6)


def consume(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    assert values(stage.client.consume(group=stage.group, topic=stage.topic, count=3)) == ["a", "b", "c"]
    assert values(stage.client.consume(group=stage.group, topic=stage.topic, count=3)) == ["d", "e", "f"]
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(0, 6)]


def resume(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    stage.client.join(group=stage.group, topic=stage.topic)
    assert values(stage.client.poll(count=3, seconds=20)) == ["a", "b", "c"]
    stage.client.commit()
    stage.client.leave()
    stage.client.join(group=stage.group, topic=stage.topic)
    assert values(stage.client.poll(count=3, seconds=20)) == ["d", "e", "f"]
    stage.client.leave()
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(0, 3)]


def killed(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    first = stage.another()
    first.join(group=stage.group, topic=stage.topic, session_ms=SHORT_SESSION_MS)
    assert values(first.poll(count=2, seconds=20)) == ["a", "b"]
    first.commit()
    assert values(first.poll(count=2, seconds=20)) == ["c", "d"]
    first.kill()
    second = stage.another()
    second.join(group=stage.group, topic=stage.topic, session_ms=SHORT_SESSION_MS)
    assert values(second.poll(count=4, seconds=20)) == ["c", "d", "e", "f"]
    second.leave()


def fenced(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    late = stage.another()
    late.join(group=stage.group, topic=stage.topic, session_ms=SHORT_SESSION_MS)
    assert values(late.poll(count=4, seconds=20)) == ["a", "b", "c", "d"]
    late.pause()
    other = stage.another()
    other.join(group=stage.group, topic=stage.topic, session_ms=SHORT_SESSION_MS)
    assert values(other.poll(count=2, seconds=20)) == ["a", "b"]
    other.commit()
    late.resume()
    refused = refusal(late.commit)
    assert refused.code in (UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS), refused
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(0, 2)]
    other.leave()


def back_to_a_time(stage: Stage) -> None:
    stage.create()
    stage.fill_hourly(6)
    stage.client.join(group=stage.group, topic=stage.topic)
    assert len(stage.client.poll(count=6, seconds=20)) == 6
    stage.client.commit()
    stage.client.leave()
    offset = stage.client.offset_for_time(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 4 * HOUR_MS)
    stage.client.set_group_offsets(group=stage.group, topic=stage.topic, offsets=[(0, offset)])
    stage.client.join(group=stage.group, topic=stage.topic)
    assert values(stage.client.poll(count=2, seconds=20)) == ["4", "5"]
    stage.client.leave()


def recreated(stage: Stage) -> None:
    stage.create()
    stage.fill("old 0", "old 1", "old 2")
    stage.client.join(group=stage.group, topic=stage.topic)
    assert len(stage.client.poll(count=3, seconds=20)) == 3
    stage.referee.delete_topic(stage.topic)
    stage.create()
    stage.fill("new 0", "new 1")
    read: list[str] = []

    def poll() -> bool:
        try:
            read.extend(values(stage.client.poll(count=1, seconds=0.5)))
        except Refused as refused:
            assert refused.code == UNKNOWN_TOPIC, refused
        return len(read) >= 2

    eventually(poll, seconds=30)
    stage.client.leave()
    assert read == ["new 0", "new 1"]


def two_members(stage: Stage) -> None:
    stage.create(PARTITIONS)
    one, other = stage.client, stage.another()
    read: list[Incoming] = []

    def shared() -> bool:
        for records in pool.map(lambda member: member.poll(count=100, seconds=0.2), (one, other)):
            read.extend(records)
        parts = [set(one.owned()), set(other.owned())]
        return all(parts) and parts[0] | parts[1] == set(range(PARTITIONS)) and not parts[0] & parts[1]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda member: member.join(group=stage.group, topic=stage.topic), (one, other)))
        eventually(shared, seconds=30)
        for partition in range(PARTITIONS):
            stage.fill("x", partition=partition)
        eventually(lambda: shared() and len(read) == PARTITIONS, seconds=20)
    other.leave()
    eventually(lambda: len(read.extend(one.poll(count=1, seconds=0.2)) or one.owned()) == PARTITIONS, seconds=20)
    one.leave()


def crowd(stage: Stage) -> None:
    """Members come and go while records are produced, and commit before they give partitions away: each record comes once."""
    partitions, records = PARTITIONS * 3, 1_200
    stage.create(partitions)
    read: list[tuple[int, int]] = []

    def member(number: int) -> int:
        client = stage.another()
        client.join(group=stage.group, topic=stage.topic, hand_over=True)
        before = len(read)
        while len(read) < records and not (number % 2 and len(read) > before + 100):
            read.extend((each.partition, each.offset) for each in client.poll(count=20, seconds=0.1))
        client.leave()
        client.kill()
        return number

    with ThreadPoolExecutor(stage.members) as pool:
        playing = [pool.submit(member, number) for number in range(stage.members)]
        for _ in range(records // 60):
            stage.referee.produce(stage.topic, [Outgoing(value=b"x", partition=each % partitions) for each in range(60)])
        for each in playing:
            each.result(90)
    expected = [(partition, offset) for partition in range(partitions) for offset in range(records // partitions)]
    assert sorted(read) == expected


def stream(stage: Stage) -> None:
    stage.create()
    target = f"{stage.topic}.copy"
    stage.referee.create_topic(target, 1, {})
    with TemporaryDirectory() as checkpoint:
        for values_ in (["a", "b", "c"], ["d", "e"]):
            stage.fill(*values_)
            stage.client.stream(source=stage.topic, target=target, checkpoint=checkpoint)
    assert values(stage.referee.read(target, 0, BEGINNING, 5)) == ["A", "B", "C", "D", "E"]
    assert stage.referee.bounds(target, 0).latest == 5


def topics(stage: Stage) -> None:
    stage.client.create_topic(topic=stage.topic, partitions=3, configs={"retention.ms": "3600000"})
    assert stage.topic in stage.client.topics()
    assert stage.client.partitions(topic=stage.topic) == 3
    again = refusal(lambda: stage.client.create_topic(topic=stage.topic, partitions=3, configs={}))
    assert again.code == TOPIC_EXISTS, again
    stage.client.delete_topic(topic=stage.topic)
    eventually(lambda: stage.topic not in stage.client.topics())
    gone = refusal(lambda: stage.client.delete_topic(topic=stage.topic))
    assert gone.code == UNKNOWN_TOPIC, gone


def list_topics(stage: Stage) -> None:
    stage.create(3)
    assert stage.topic in stage.client.topics()
    assert stage.client.partitions(topic=stage.topic) == 3
    stage.referee.delete_topic(stage.topic)
    eventually(lambda: stage.topic not in stage.client.topics())


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
    assert len(stage.client.poll(count=3, seconds=20)) == 3
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
    assert values(member.poll(count=1, seconds=20)) == ["a"]
    busy = refusal(lambda: stage.client.delete_group(group=stage.group))
    assert busy.code == NON_EMPTY_GROUP, busy
    member.leave()


def delete_group_offsets(stage: Stage) -> None:
    stage.create(2)
    stage.referee.set_group_offsets(stage.group, stage.topic, [(0, 0), (1, 0)])
    stage.client.delete_group_offsets(group=stage.group, topic=stage.topic, partitions=[0])
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(1, 0)]


def transaction(stage: Stage) -> None:
    stage.create()
    writer = stage.another()
    writer.open_transactions(transactional_id=stage.group)
    for value, commit in (("a", True), ("b", False), ("c", True)):
        writer.begin()
        writer.send(topic=stage.topic, records=[Outgoing(value=value.encode(), partition=0)])
        writer.end(commit=commit)
    read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=2, committed_only=True)
    assert values(read) == ["a", "c"]
    assert values(stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=3)) == ["a", "b", "c"]


def fenced_producer(stage: Stage) -> None:
    stage.create()
    old, new = stage.another(), stage.another()
    old.open_transactions(transactional_id=stage.group)
    old.begin()
    old.send(topic=stage.topic, records=[Outgoing(value=b"old", partition=0)])
    new.open_transactions(transactional_id=stage.group)
    refused = refusal(lambda: old.end(commit=True))
    assert refused.code in (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH), refused
    new.begin()
    new.send(topic=stage.topic, records=[Outgoing(value=b"new", partition=0)])
    new.end(commit=True)
    read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1, committed_only=True)
    assert values(read) == ["new"]


def exactly_once(stage: Stage) -> None:
    """Read from one topic, write to another, and the offsets go with the output. The first try is aborted."""
    stage.create()
    target = f"{stage.topic}.target"
    stage.referee.create_topic(target, 1, {})
    stage.fill(*"abc")
    for commit in (False, True):
        worker = stage.another()
        worker.join(group=stage.group, topic=stage.topic)
        worker.open_transactions(transactional_id=stage.group)
        worker.begin()
        taken = worker.poll(count=3, seconds=20)
        assert values(taken) == ["a", "b", "c"]
        worker.send(topic=target, records=[Outgoing(value=each.upper().encode(), partition=0) for each in values(taken)])
        worker.send_offsets()
        worker.end(commit=commit)
        assert stage.referee.group_offsets(stage.group, stage.topic) == ([(0, 3)] if commit else [])
        worker.leave()
    read = stage.client.read(topic=target, partition=0, start=BEGINNING, count=3, committed_only=True)
    assert values(read) == ["A", "B", "C"]


SCENARIOS = (
    Scenario("keyed", "Keyed records: one partition a key, in order", "Produce, Fetch, Metadata", keyed),
    Scenario("text-headers", "Headers", "Produce, Fetch", text_headers),
    Scenario("headers", "Headers: bytes, nulls, empty ones, the same name twice", "Produce, Fetch", headers),
    Scenario("nulls", "Null keys and null values", "Produce, Fetch", nulls),
    Scenario("every-byte", "Keys and values of any bytes, and of none", "Produce, Fetch", every_byte),
    Scenario("timestamps", "Timestamps given by the producer", "Produce, Fetch", timestamps),
    Scenario("gzip", "gzip: byte for byte, in order", "Produce, Fetch", through("gzip")),
    Scenario("snappy", "snappy: byte for byte, in order", "Produce, Fetch", through("snappy")),
    Scenario("lz4", "lz4: byte for byte, in order", "Produce, Fetch", through("lz4")),
    Scenario("zstd", "zstd: byte for byte, in order", "Produce, Fetch", through("zstd")),
    Scenario("idempotent", "Idempotent producer", "InitProducerId, Produce", idempotent),
    Scenario("one-megabyte", "A record of 1 MB (997,500 bytes) with default limits", "Produce, Fetch", one_megabyte),
    Scenario("too-large", "A record of 2 MB is refused as too large by the server", "Produce", too_large),
    Scenario("larger-topic", "A record of 10 MB where the topic allows it", "CreateTopics, Produce, Fetch", larger_topic),
    Scenario("seek-offset", "Read from an offset", "Fetch", seek_offset),
    Scenario("seek-time", "Read from a time", "ListOffsets, Fetch", seek_time),
    Scenario("seek-ends", "Seek to the beginning and to the end", "ListOffsets", seek_ends),
    Scenario("offsets-by-time", "Look up offsets by time", "ListOffsets", offsets_by_time),
    Scenario("list-offsets", "List the first and the last offset", "ListOffsets", list_offsets),
    Scenario("consume", "Read as a group, leave, and go on", "FindCoordinator, JoinGroup, OffsetCommit, OffsetFetch", consume),
    Scenario(
        "resume", "Resume from what was committed, not from what was read", "SyncGroup, OffsetCommit, OffsetFetch", resume
    ),
    Scenario("two-members", "Two members share a topic; one takes over", "JoinGroup, SyncGroup, LeaveGroup", two_members),
    Scenario("crowd", "Ten members come and go while producing: each record once", "JoinGroup, Heartbeat, LeaveGroup", crowd),
    Scenario("killed", "Killed between poll and commit: records come again", "Heartbeat, OffsetFetch", killed),
    Scenario("fenced", "A member that comes back too late can not commit", "OffsetCommit", fenced),
    Scenario("back-to-a-time", "A group moved back to a time", "ListOffsets, OffsetCommit", back_to_a_time),
    Scenario("recreated", "A topic re-created under a running consumer", "Metadata, Fetch, ListOffsets", recreated),
    Scenario("stream", "A streaming query goes on from its checkpoint", "ListOffsets, Fetch, Produce", stream),
    Scenario("list-topics", "List topics and their partitions", "Metadata", list_topics),
    Scenario("topics", "Create and delete topics", "CreateTopics, DeleteTopics", topics),
    Scenario("add-partitions", "Add partitions", "CreatePartitions", add_partitions),
    Scenario("configs", "Describe and alter configs", "DescribeConfigs, IncrementalAlterConfigs, AlterConfigs", configs),
    Scenario("delete-records", "Delete records", "DeleteRecords", delete_records),
    Scenario("cluster", "Describe the cluster", "DescribeCluster, Metadata", cluster),
    Scenario("groups", "List and describe groups and their offsets", "ListGroups, DescribeGroups, OffsetFetch", groups),
    Scenario("delete-groups", "Delete groups", "DeleteGroups", delete_groups),
    Scenario("delete-group-offsets", "Delete a group's offsets", "OffsetDelete", delete_group_offsets),
    Scenario(
        "transaction", "Transactions: all or nothing for `read_committed`", "AddPartitionsToTxn, EndTxn", transaction, True
    ),
    Scenario("fenced-producer", "A second producer fences the first", "InitProducerId, EndTxn", fenced_producer, True),
    Scenario(
        "exactly-once",
        "Read, write and commit offsets in one transaction",
        "AddOffsetsToTxn, TxnOffsetCommit",
        exactly_once,
        True,
    ),
)
