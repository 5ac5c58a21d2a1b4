"""Members of groups: how they share, come, go and are lost, by the classic protocol and by the consumer protocol."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.compat.contract import ILLEGAL_GENERATION, Incoming, Outgoing, Refused
from tests.compat.process import ClientProcess
from tests.compat.scenarios.stage import HOUR_MS, PARTITIONS, SOME_TIME_MS, Scenario, Stage, values
from tests.compat.waiting import eventually

SHORT_SESSION_MS = 2_000
"""Of members that are lost."""
LONG_SESSION_MS = 60_000
UNKNOWN_TOPIC = 3
UNKNOWN_MEMBER = 25
UNKNOWN_TOPIC_ID = 100
REBALANCE_IN_PROGRESS = 27
FENCED_MEMBER_EPOCH = 110
STALE_MEMBER_EPOCH = 113
TOO_LATE = (UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH)
"""What a member is told that its group has gone on without."""

Join = Callable[..., None]


def classic(member: ClientProcess, stage: Stage, **options: Any) -> None:
    member.join(group=stage.group, topic=stage.topic, **options)


def by_consumer_protocol(member: ClientProcess, stage: Stage, session_ms: int = 0, **options: Any) -> None:
    """Join without a length of the session, which is the server's to say."""
    member.join_by_consumer_protocol(group=stage.group, topic=stage.topic, **options)


def consume(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    assert values(stage.client.consume(group=stage.group, topic=stage.topic, count=3)) == ["a", "b", "c"]
    assert values(stage.client.consume(group=stage.group, topic=stage.topic, count=3)) == ["d", "e", "f"]
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(0, 6)]


def resume(stage: Stage, join: Join = classic) -> None:
    stage.create()
    stage.fill(*"abcdef")
    join(stage.client, stage)
    assert values(stage.client.poll(count=3, seconds=60)) == ["a", "b", "c"]
    stage.client.commit()
    stage.client.leave()
    join(stage.client, stage)
    assert values(stage.client.poll(count=3, seconds=60)) == ["d", "e", "f"]
    stage.client.leave()
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(0, 3)]


def two_members(stage: Stage, join: Join = classic) -> None:
    stage.create(PARTITIONS)
    one, other = stage.client, stage.another()
    read: list[Incoming] = []

    def shared() -> bool:
        for records in pool.map(lambda member: member.poll(count=100, seconds=0.2), (one, other)):
            read.extend(records)
        parts = [set(one.owned()), set(other.owned())]
        return all(parts) and parts[0] | parts[1] == set(range(PARTITIONS)) and not parts[0] & parts[1]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda member: join(member, stage), (one, other)))
        eventually(shared, seconds=60)
        for partition in range(PARTITIONS):
            stage.fill("x", partition=partition)
        eventually(lambda: shared() and len(read) == PARTITIONS, seconds=60)
    other.leave()

    def has_all() -> bool:
        read.extend(one.poll(count=1, seconds=0.2))
        return len(one.owned()) == PARTITIONS

    eventually(has_all, seconds=60)
    one.leave()


def crowd(stage: Stage, join: Join = classic) -> None:
    """Members come and go while records are produced, and commit before they give partitions away: each record comes once."""
    partitions, records = PARTITIONS * 3, 1_200
    stage.create(partitions)
    read: list[tuple[int, int]] = []

    def member(number: int) -> int:
        client = stage.another()
        join(client, stage, hand_over=True)
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
            each.result(240)
    expected = [(partition, offset) for partition in range(partitions) for offset in range(records // partitions)]
    assert sorted(read) == expected


def killed(stage: Stage, join: Join = classic) -> None:
    stage.create()
    stage.fill(*"abcdef")
    first = stage.another()
    join(first, stage, session_ms=SHORT_SESSION_MS)
    assert values(first.poll(count=2, seconds=60)) == ["a", "b"]
    first.commit()
    assert values(first.poll(count=2, seconds=60)) == ["c", "d"]
    first.kill()
    second = stage.another()
    join(second, stage, session_ms=LONG_SESSION_MS)
    assert values(second.poll(count=4, seconds=60)) == ["c", "d", "e", "f"]
    second.leave()


def fenced(stage: Stage, join: Join = classic) -> None:
    stage.create()
    stage.fill(*"abcdef")
    late = stage.another()
    join(late, stage, session_ms=SHORT_SESSION_MS)
    assert values(late.poll(count=4, seconds=60)) == ["a", "b", "c", "d"]
    late.pause()
    other = stage.another()
    join(other, stage, session_ms=LONG_SESSION_MS)
    assert values(other.poll(count=2, seconds=60)) == ["a", "b"]
    other.commit()
    late.resume()
    try:
        late.commit()
    except Refused as refused:
        assert refused.code in TOO_LATE, refused
    # Otherwise its heartbeat was answered first, in the background, and it has nothing left to commit.
    assert stage.referee.group_offsets(stage.group, stage.topic) == [(0, 2)]
    other.leave()


def back_to_a_time(stage: Stage) -> None:
    stage.create()
    stage.fill_hourly(6)
    stage.client.join(group=stage.group, topic=stage.topic)
    assert len(stage.client.poll(count=6, seconds=60)) == 6
    stage.client.commit()
    stage.client.leave()
    offset = stage.client.offset_for_time(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 4 * HOUR_MS)
    stage.client.set_group_offsets(group=stage.group, topic=stage.topic, offsets=[(0, offset)])
    stage.client.join(group=stage.group, topic=stage.topic)
    assert values(stage.client.poll(count=2, seconds=60)) == ["4", "5"]
    stage.client.leave()


def recreated(stage: Stage) -> None:
    stage.create()
    stage.fill("old 0", "old 1", "old 2")
    stage.client.join(group=stage.group, topic=stage.topic)
    assert len(stage.client.poll(count=3, seconds=60)) == 3
    stage.referee.delete_topic(stage.topic)
    stage.create()
    stage.fill("new 0", "new 1")
    read: list[str] = []

    def poll() -> bool:
        try:
            read.extend(values(stage.client.poll(count=1, seconds=0.5)))
        except Refused as refused:
            assert refused.code in (UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID), refused
        return len(read) >= 2

    eventually(poll, seconds=60)
    stage.client.leave()
    assert read == ["new 0", "new 1"]


def static_members(stage: Stage, join: Join = classic, *, leaves: bool = False) -> None:
    """A member that is lost, or leaves, and comes back under its name has its partitions again before its session is over.

    By the consumer protocol its name is free when it has left, which keeps its partitions for it.
    """
    stage.create(PARTITIONS)

    def start(name: str) -> ClientProcess:
        member = stage.another()
        join(member, stage, session_ms=LONG_SESSION_MS, instance_id=name)
        return member

    def is_shared(*members: ClientProcess) -> bool:
        list(pool.map(lambda member: member.poll(count=1, seconds=0.2), members))
        owned = [set(member.owned()) for member in members]
        return all(owned) and sum(map(len, owned)) == PARTITIONS == len(set.union(*owned))

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(start, ("one", "other"))
        eventually(lambda: is_shared(one, other), seconds=60)
        before = one.owned(), other.owned()
        if leaves:
            other.leave()
        else:
            other.kill()
        again = start("other")
        eventually(lambda: is_shared(one, again), seconds=LONG_SESSION_MS / 1000 - 10)
    assert (one.owned(), again.owned()) == before
    one.leave()
    again.leave()


def protocols_change(stage: Stage) -> None:
    """Members of both protocols share the group while it changes, and each record is committed once."""
    stage.create(PARTITIONS)
    old, new, old_again = stage.another(), stage.another(), stage.another()
    read: list[str] = []

    def share(*members: ClientProcess) -> bool:
        for records in pool.map(lambda member: member.poll(count=100, seconds=0.2), members):
            read.extend(values(records))
        owned = [set(member.owned()) for member in members]
        return all(owned) and sum(map(len, owned)) == PARTITIONS == len(set.union(*owned))

    def fill(name: str, *members: ClientProcess) -> None:
        for partition in range(PARTITIONS):
            stage.fill(f"{name} {partition}", partition=partition)
            sent.append(f"{name} {partition}")
        eventually(lambda: share(*members) and len(read) == len(sent), seconds=60)

    sent: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        classic(old, stage, hand_over=True)
        fill("classic", old)
        by_consumer_protocol(new, stage, hand_over=True)
        fill("both", old, new)
        old.commit()
        old.leave()
        fill("consumer", new)
        classic(old_again, stage, hand_over=True)
        fill("both again", new, old_again)
        new.commit()
        new.leave()
        fill("classic again", old_again)
        old_again.leave()
    assert sorted(read) == sorted(sent)


SCENARIOS = (
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
    Scenario("static-members", "A static member comes back to its partitions", "JoinGroup, SyncGroup", static_members),
    Scenario(
        "consumer-protocol",
        "`group.protocol=consumer`: resume from what was committed",
        "ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch",
        partial(resume, join=by_consumer_protocol),
    ),
    Scenario(
        "consumer-protocol-two-members",
        "`group.protocol=consumer`: two members share a topic; one takes over",
        "ConsumerGroupHeartbeat",
        partial(two_members, join=by_consumer_protocol),
    ),
    Scenario(
        "consumer-protocol-crowd",
        "`group.protocol=consumer`: ten members come and go while producing: each record once",
        "ConsumerGroupHeartbeat, OffsetCommit",
        partial(crowd, join=by_consumer_protocol),
    ),
    Scenario(
        "consumer-protocol-killed",
        "`group.protocol=consumer`: killed between poll and commit: records come again",
        "ConsumerGroupHeartbeat, OffsetFetch",
        partial(killed, join=by_consumer_protocol),
    ),
    Scenario(
        "consumer-protocol-fenced",
        "`group.protocol=consumer`: a member that comes back too late can not commit",
        "ConsumerGroupHeartbeat, OffsetCommit",
        partial(fenced, join=by_consumer_protocol),
    ),
    Scenario(
        "consumer-protocol-static-members",
        "`group.protocol=consumer`: a static member comes back to its partitions",
        "ConsumerGroupHeartbeat",
        partial(static_members, join=by_consumer_protocol, leaves=True),
    ),
    Scenario(
        "protocols-change",
        "A group goes to `group.protocol=consumer` and back, member by member",
        "JoinGroup, SyncGroup, ConsumerGroupHeartbeat",
        protocols_change,
    ),
)
