"""Transactions: all or nothing, one producer an id, and what an operator sees of them."""

from tests.compat.contract import MISSING, Outgoing
from tests.compat.scenarios.stage import BEGINNING, Scenario, Stage, refusal, values

PRODUCER_FENCED = 90
INVALID_PRODUCER_EPOCH = 47


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
        taken = worker.poll(count=3, seconds=60)
        assert values(taken) == ["a", "b", "c"]
        worker.send(topic=target, records=[Outgoing(value=each.upper().encode(), partition=0) for each in values(taken)])
        worker.send_offsets()
        worker.end(commit=commit)
        assert stage.referee.group_offsets(stage.group, stage.topic) == ([(0, 3)] if commit else [])
        worker.leave()
    read = stage.client.read(topic=target, partition=0, start=BEGINNING, count=3, committed_only=True)
    assert values(read) == ["A", "B", "C"]


def producers(stage: Stage) -> None:
    """Who writes to a partition, and since where a transaction is open there."""
    stage.create()
    stage.fill("before")
    writer = stage.referee
    writer.open_transactions(stage.group)
    writer.begin()
    writer.send(stage.topic, [Outgoing(value=b"open", partition=0)])
    (found,) = stage.client.producers(topic=stage.topic, partition=0)
    assert found.open_since == 1
    writer.end(commit=True)
    (ended,) = stage.client.producers(topic=stage.topic, partition=0)
    assert ended == (found.producer_id, MISSING)


def list_transactions(stage: Stage) -> None:
    stage.create(2)
    writer = stage.referee
    writer.open_transactions(stage.group)
    writer.begin()
    writer.send(stage.topic, [Outgoing(value=b"open", partition=1)])
    assert (stage.group, "ongoing") in stage.client.transactions()
    found = stage.client.describe_transaction(transactional_id=stage.group)
    assert found == ("ongoing", [(stage.topic, 1)])
    writer.end(commit=False)
    assert (stage.group, "completeabort") in stage.client.transactions()
    assert stage.client.describe_transaction(transactional_id=stage.group) == ("completeabort", [])


SCENARIOS = (
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
    Scenario("producers", "See the producers of a partition", "DescribeProducers", producers, True),
    Scenario(
        "list-transactions",
        "List and describe transactions",
        "ListTransactions, DescribeTransactions",
        list_transactions,
        True,
    ),
)
