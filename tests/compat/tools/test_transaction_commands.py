"""Kafka's command line for transactions: what it shows of an open one, how it ends it, and copies that are exactly once."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.compat.tools import topics
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import COMMANDS, java, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess
from tests.support.server import ServerProcess

COPIED = 20_000
KILLS = 3


def rows(lines: list[str]) -> list[dict[str, str]]:
    """Read a table whose cells are separated by tabs."""
    head, *rest = [[cell.strip() for cell in line.split("\t")] for line in lines]
    return [dict(zip(head, row, strict=False)) for row in rest]


@tool(
    COMMANDS,
    "`kafka-transactions`: list, describe, describe-producers, find-hanging, forceTerminateTransaction",
    short=True,
)
def test_an_open_transaction_is_shown_and_ended(kafka: CommandLine, tool_server: ServerProcess) -> None:
    topics.create(tool_server.kafka, "open.orders", partitions=2)
    topics.fill(tool_server.kafka, "open.orders", ["before"])
    producer = Producer({"bootstrap.servers": tool_server.kafka, "transactional.id": "payments", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("open.orders", "open", partition=1)
    producer.flush(60)

    (listed,) = rows(kafka.lines("kafka-transactions", "list"))
    assert (listed["TransactionalId"], listed["Coordinator"], listed["TransactionState"]) == ("payments", "0", "Ongoing")
    (described,) = rows(kafka.lines("kafka-transactions", "describe", "--transactional-id", "payments"))
    assert described["TopicPartitions"] == "open.orders-1"
    assert rows(kafka.lines("kafka-transactions", "list", "--duration-filter", "3600000")) == []
    producers = rows(kafka.lines("kafka-transactions", "describe-producers", "--topic", "open.orders", "--partition", "1"))
    (open_there,) = [row for row in producers if row["CurrentTransactionStartOffset"] != "None"]
    assert open_there["ProducerId"] == listed["ProducerId"]
    assert rows(kafka.lines("kafka-transactions", "find-hanging", "--broker-id", "0")) == []
    assert topics.values(topics.read(tool_server.kafka, "open.orders")) == ["before"]

    kafka.lines("kafka-transactions", "forceTerminateTransaction", "--transactionalId", "payments")
    (ended,) = rows(kafka.lines("kafka-transactions", "list"))
    assert ended["TransactionState"] == "Empty"
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        producer.commit_transaction(60)
    assert topics.values(topics.read(tool_server.kafka, "open.orders")) == ["before"]
    assert len(topics.read(tool_server.kafka, "open.orders", committed_only=False)) == 2


@tool(COMMANDS, "`transactional-message-copier`: every record once, over random aborts, kills of the copier and of the server")
def test_copies_are_exactly_once_over_kills(own_server: ServerProcess, tmp_path: Path) -> None:
    kafka = own_server.kafka
    topics.create(kafka, "copy.source", "copy.target")
    topics.fill(kafka, "copy.source", (str(number) for number in range(COPIED)))

    def goes_on(copier: LoggedProcess) -> None:
        reached = topics.end(kafka, "copy.target")
        eventually(lambda: topics.end(kafka, "copy.target") > reached + 100, "more copies", 100)
        assert not copier.has_ended, "it was through before it was killed"

    for kill in range(KILLS + 1):
        with LoggedProcess(_copier(kafka), tmp_path / f"copier-{kill}.log") as copier:
            if kill == KILLS:
                assert copier.wait() == 0
                break
            goes_on(copier)
            if kill % 2:
                own_server.kill()
                own_server.start()
                goes_on(copier)
    assert topics.values(topics.read(kafka, "copy.target")) == [str(number) for number in range(COPIED)]
    everything = topics.read(kafka, "copy.target", committed_only=False)
    assert len(everything) > COPIED, "no transaction was aborted, so the test shows nothing"


def _copier(kafka: str) -> list[str]:
    return java(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", kafka, "--input-topic", "copy.source", "--input-partition", "0", "--output-topic", "copy.target"),
        *("--consumer-group", "copier", "--transactional-id", "copier", "--transaction-size", "5"),
        *("--enable-random-aborts", "--use-group-metadata", "--group-mode", "--transaction-timeout", "20000"),
    )
