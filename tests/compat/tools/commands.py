"""Kafka's command line: the main classes behind its scripts, and how they are run to their end."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.compat.tools.programs import java

_TOOLS = "org.apache.kafka.tools."
MAINS = {
    "kafka-acls": _TOOLS + "AclCommand",
    "kafka-broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "kafka-client-metrics": _TOOLS + "ClientMetricsCommand",
    "kafka-cluster": _TOOLS + "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "kafka-console-producer": _TOOLS + "ConsoleProducer",
    "kafka-consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "kafka-delete-records": _TOOLS + "DeleteRecordsCommand",
    "kafka-e2e-latency": _TOOLS + "EndToEndLatency",
    "kafka-features": _TOOLS + "FeatureCommand",
    "kafka-get-offsets": _TOOLS + "GetOffsetShell",
    "kafka-groups": _TOOLS + "GroupsCommand",
    "kafka-leader-election": _TOOLS + "LeaderElectionCommand",
    "kafka-log-dirs": _TOOLS + "LogDirsCommand",
    "kafka-producer-perf-test": _TOOLS + "ProducerPerformance",
    "kafka-reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-streams-application-reset": _TOOLS + "StreamsResetter",
    "kafka-topics": _TOOLS + "TopicCommand",
    "kafka-transactions": _TOOLS + "TransactionsCommand",
    "kafka-verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "kafka-verifiable-producer": _TOOLS + "VerifiableProducer",
    "transactional-message-copier": _TOOLS + "TransactionalMessageCopier",
}
"""By the names of the scripts, which only look for Java and the jars."""

_ADDRESS_LAST = ("kafka-cluster",)
"""Scripts whose first argument is what they are to do."""
_ONLY_ADDRESS = ("kafka-e2e-latency",)
"""Scripts that take the address without a name."""
_SECONDS = 120


class Done(NamedTuple):
    code: int
    output: str
    errors: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.output}\n{self.errors}"


class CommandLine:
    """Kafka's scripts for one server, at which they log in with what a file of properties says."""

    def __init__(self, bootstrap: str, login: Path | None = None) -> None:
        self.bootstrap = bootstrap
        self._login = () if login is None else ("--command-config", str(login))

    def command(self, script: str, *arguments: str) -> list[str]:
        """Return the command that runs a script."""
        address = (self.bootstrap,) if script in _ONLY_ADDRESS else ("--bootstrap-server", self.bootstrap, *self._login)
        return java(MAINS[script], *((*arguments, *address) if script in _ADDRESS_LAST else (*address, *arguments)))

    def run(self, script: str, *arguments: str, given: str | None = None) -> Done:
        """Run a script to its end, whatever that is."""
        done = subprocess.run(self.command(script, *arguments), input=given, capture_output=True, text=True, timeout=_SECONDS)
        return Done(done.returncode, done.stdout, done.stderr)

    def lines(self, script: str, *arguments: str, given: str | None = None) -> list[str]:
        """Return what a script says that succeeds, without empty lines."""
        done = self.run(script, *arguments, given=given)
        assert done.code == 0, f"{script} {' '.join(arguments)}: {done}"
        return [line for line in map(str.strip, done.output.splitlines()) if line and not line.startswith("WARNING:")]

    def table(self, script: str, *arguments: str) -> list[dict[str, str]]:
        """Return the rows of a table by the words of its head."""
        return rows_of(self.lines(script, *arguments))

    def refused(self, script: str, *arguments: str) -> str:
        """Return what a script says that fails. Some say it and end with 0."""
        done = self.run(script, *arguments)
        said = done.output + done.errors
        assert done.code != 0 or "rror" in said, f"{script} {' '.join(arguments)} was not refused: {done}"
        return said


def rows_of(lines: Sequence[str]) -> list[dict[str, str]]:
    """Read tables whose cells have no spaces. A line of a head, which is in capitals, begins a new one."""
    rows, head = [], []
    for line in lines:
        words = line.split()
        if line.upper() == line and not any(word[0].isdigit() for word in words):
            head = words
        elif head and len(words) == len(head):
            rows.append(dict(zip(head, words, strict=True)))
    return rows
