"""Kafka's command line says of Tailrace what it says of Apache Kafka, line by line, and describes the same configs.

Kafka is the judge: no expectation is written down here.
"""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from bench.peers.kafka import KafkaPeer
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import COMMANDS, KAFKA_JARS, tool
from tests.support.server import ServerProcess

T = TypeVar("T")
GIVEN = "".join(f"{number}\n" for number in range(10))
OFFSETS = {"version": 1, "partitions": [{"topic": "b", "partition": 0, "offset": 3}]}
TOO_FAR = {"version": 1, "partitions": [{"topic": "b", "partition": 0, "offset": 99}]}
MOVE = {"version": 1, "partitions": [{"topic": "b", "partition": 0, "replicas": [0], "log_dirs": ["any"]}]}
AWAY = {"version": 1, "partitions": [{"topic": "b", "partition": 0, "replicas": [7], "log_dirs": ["any"]}]}
FILES = {"offsets": OFFSETS, "too-far": TOO_FAR, "move": MOVE, "away": AWAY}

SCRIPT = """
kafka-topics --create --topic b
kafka-topics --create --topic a --partitions 3 --replication-factor 1
kafka-topics --create --topic a --if-not-exists
kafka-topics --describe --topic a
kafka-topics --alter --topic a --partitions 5
kafka-topics --alter --topic gone --partitions 5
kafka-topics --alter --topic gone --partitions 5 --if-exists
kafka-topics --describe --topic gone
kafka-topics --create --topic c --partitions 0
kafka-topics --create --topic c --replica-assignment 0:0
kafka-topics --create --topic c --config nonsense=1
kafka-topics --create --topic c --config retention.ms=soon
kafka-topics --create --topic c --replica-assignment 0,0
kafka-topics --list
kafka-topics --list --exclude-internal
kafka-topics --describe --unavailable-partitions
kafka-topics --describe --under-min-isr-partitions
kafka-topics --describe --at-min-isr-partitions
kafka-topics --delete --topic c
kafka-topics --delete --topic c
kafka-configs --alter --topic a --add-config cleanup.policy=[compact,delete],delete.retention.ms=5000
kafka-configs --describe --topic a
kafka-configs --alter --topic a --delete-config cleanup.policy,delete.retention.ms
kafka-configs --describe --topic a
kafka-configs --describe --topic gone
kafka-configs --describe --entity-type client-metrics
kafka-console-producer --topic b < values
kafka-console-consumer --topic b --from-beginning --max-messages 10 --group classic
kafka-console-consumer --topic b --from-beginning --max-messages 10 --group new --command-property group.protocol=consumer
kafka-console-consumer --topic b --partition 0 --offset 8 --max-messages 2 --formatter-property print.offset=true
kafka-get-offsets --topic b --time earliest
kafka-get-offsets --topic b --time latest
kafka-get-offsets --topic b --time latest-tiered
kafka-get-offsets --topic b --time earliest-local
kafka-get-offsets --topic b --time 1000
kafka-get-offsets --topic b --time 9000000000000
kafka-get-offsets --topic-partitions b:0,a:1-3
kafka-get-offsets --topic gone
kafka-delete-records --offset-json-file offsets
kafka-delete-records --offset-json-file too-far
kafka-get-offsets --topic b --time earliest
kafka-consumer-groups --list --state
kafka-consumer-groups --list --type
kafka-groups --list
kafka-groups --list --consumer
kafka-groups --list --protocol consumer
kafka-consumer-groups --describe --group classic
kafka-consumer-groups --describe --group classic --state
kafka-consumer-groups --describe --group classic --members --verbose
kafka-consumer-groups --describe --group new
kafka-consumer-groups --describe --group new --state
kafka-consumer-groups --describe --group new --members --verbose
kafka-consumer-groups --group classic --reset-offsets --to-offset 5 --topic b --dry-run
kafka-consumer-groups --group classic --reset-offsets --to-offset 5 --topic b --execute
kafka-consumer-groups --group new --reset-offsets --shift-by -2 --topic b --execute
kafka-consumer-groups --group new --reset-offsets --to-latest --all-topics --execute --export
kafka-consumer-groups --group made --reset-offsets --to-earliest --topic b --execute
kafka-consumer-groups --group made --reset-offsets --to-offset 99 --topic b:0 --execute
kafka-consumer-groups --group made --delete-offsets --topic b:0
kafka-consumer-groups --group made --delete-offsets --topic gone
kafka-consumer-groups --group gone --delete-offsets --topic b
kafka-consumer-groups --delete --group classic --group gone
kafka-consumer-groups --describe --all-groups
kafka-configs --describe --entity-type groups
kafka-configs --describe --group gone
kafka-leader-election --election-type preferred --all-topic-partitions
kafka-leader-election --election-type unclean --topic b --partition 0
kafka-reassign-partitions --verify --reassignment-json-file move
kafka-reassign-partitions --cancel --reassignment-json-file move
kafka-reassign-partitions --execute --reassignment-json-file away
kafka-reassign-partitions --list
kafka-features upgrade --feature transaction.version=2
kafka-client-metrics --list
kafka-cluster list-endpoints
kafka-transactions list
kafka-transactions describe --transactional-id gone
kafka-transactions find-hanging --broker-id 0
kafka-transactions forceTerminateTransaction --transactionalId gone
"""
"""Played from the first line to the last, so later ones see what earlier ones did."""


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    peer = KafkaPeer(KAFKA_JARS, tmp_path_factory.mktemp("apache"), "relaxed")
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


def both(tool_server: ServerProcess, apache: KafkaPeer, ask: Callable[[CommandLine], T]) -> tuple[T, T]:
    """Return the answers of Tailrace and of Kafka."""
    with ThreadPoolExecutor(2) as pool:
        ours, kafkas = pool.map(ask, (CommandLine(tool_server.kafka), CommandLine(str(apache.address))))
    return ours, kafkas


@tool(COMMANDS, f"{len(SCRIPT.strip().splitlines())} commands that say what they say of Apache Kafka")
@pytest.mark.timeout(900)
def test_commands_say_what_they_say_of_kafka(tool_server: ServerProcess, apache: KafkaPeer, files: Path) -> None:
    differences = []
    for line in SCRIPT.strip().splitlines():
        ours, kafkas = both(tool_server, apache, lambda server: _said(server, line, files))  # noqa: B023
        if ours != kafkas:
            differences.append(f"{line}\n  Tailrace: {ours}\n  Kafka:    {kafkas}")
    assert not differences, "\n" + "\n".join(differences)


@tool(COMMANDS, "`kafka-configs`: all topic configs that Apache Kafka describes, with the names of their defaults")
def test_topics_have_all_configs_of_kafka_and_the_names_of_their_defaults(
    tool_server: ServerProcess, apache: KafkaPeer
) -> None:
    def names(server: CommandLine) -> dict[str, str]:
        server.lines("kafka-topics", "--create", "--topic", "described", "--if-not-exists")
        lines = server.lines("kafka-configs", "--describe", "--topic", "described", "--all")
        found = [re.match(r"(\S+?)=.*\bDEFAULT_CONFIG:([^=]+)=", line) for line in lines]
        return {match[1]: match[2] for match in found if match}

    ours, kafkas = both(tool_server, apache, names)
    assert len(kafkas) > 20
    assert {name: ours.get(name) for name in kafkas} == kafkas


def _said(server: CommandLine, line: str, files: Path) -> tuple[int, list[str]]:
    words, _, given = line.partition(" < ")
    script, *arguments = [str(files / word) if word in FILES else word for word in words.split()]
    done = server.run(script, *arguments, given=GIVEN if given else None)
    lines = (done.output + done.errors).splitlines()
    return done.code, [_without_names(said, server.bootstrap) for said in lines if _is_said(said)]


def _is_said(line: str) -> bool:
    """Leave out stack traces and logs: what counts is what is printed for a person."""
    return bool(line.strip()) and not re.match(r"\s+at |\[\S+\] |Picked up|The consumer rebalance protocol", line)


def _without_names(line: str, address: str) -> str:
    """Replace what is different in every cluster, and what Kafka says of its own."""
    host, _, port = address.partition(":")
    line = line.replace(address, "ADDRESS").replace(f"{host} {port}", "ADDRESS")
    line = re.sub(rf"{host}\s+{port}", "ADDRESS", line)
    line = re.sub(r"TopicId: \S+", "TopicId: ID", line)
    line = re.sub(r"Configs: min.insync.replicas=1,?", "Configs: ", line)
    return line.rstrip()
