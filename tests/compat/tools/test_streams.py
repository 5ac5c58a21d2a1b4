"""Kafka Streams on a real server, with its repartition topics and changelogs. What it computes is compared with Python."""

import itertools
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event

import pytest

from tests.compat.tools import topics
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import STREAMS, STREAMS_JAR, java, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess
from tests.support.server import ServerProcess

LINES = ("All streams lead to Kafka", "Hello Kafka streams", "Join Kafka summit", "all the lines of all streams")
ACCOUNTS = 20
TRANSFERS = 200
"""In each go."""
KILLED = (("one",), ("server",), ("other",), ("one", "server"), ("one", "other"), ("server",))
PARTITIONS = 4


class Application:
    """A topology on a server, in any number of processes."""

    def __init__(self, topology: str, server: ServerProcess, folder: Path, guarantee: str) -> None:
        self._topology = topology
        self._server = server
        self._folder = folder
        self._guarantee = guarantee
        self._numbers = itertools.count()

    def start(self, state: str) -> LoggedProcess:
        """Start a process with a folder of its own for its state."""
        command = java(
            "tailrace.compat.streams.Main",
            *(self._topology, self._server.kafka, self._topology, str(self._folder / state), self._guarantee),
            jars=(STREAMS_JAR,),
        )
        return LoggedProcess(command, self._folder / f"{self._topology}-{next(self._numbers)}.log")

    def wipe(self, state: str) -> None:
        shutil.rmtree(self._folder / state)


def counted(lines: list[str]) -> dict[str | None, str | None]:
    return {word: str(count) for word, count in Counter(" ".join(lines).lower().split()).items()}


@tool(STREAMS, "Word count with a repartition topic and a compacted changelog, from which counts are restored", short=True)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted_and_counts_restored(own_server: ServerProcess, tmp_path: Path, guarantee: str) -> None:
    topics.create(own_server.kafka, "words.lines", "words.counts", partitions=PARTITIONS)
    application = Application("words", own_server, tmp_path, guarantee)
    lines = list(LINES)
    for count in (1, 40):
        with application.start("state") as process:
            more = [LINES[number % len(LINES)] for number in range(count)]
            lines += more
            topics.fill(own_server.kafka, "words.lines", [*LINES, *more] if count == 1 else more)
            eventually(lambda: topics.latest(topics.read(own_server.kafka, "words.counts")) == counted(lines), "the counts")  # noqa: B023
            assert process.terminate() == 143
        application.wipe("state")
    updates = topics.read(own_server.kafka, "words.counts")
    assert len(updates) == sum(int(count or 0) for count in counted(lines).values()), "a word was counted twice"
    kafka = CommandLine(own_server.kafka)
    described = "\n".join(kafka.lines("kafka-topics", "--describe", "--topic", "words-.*"))
    assert "Topic: words-words-repartition" in described
    assert topics.compacted_records(own_server.url) > 0
    changelog = kafka.lines("kafka-configs", "--describe", "--topic", "words-counts-changelog")
    assert any(line.startswith("cleanup.policy=compact ") for line in changelog)


@tool(STREAMS, "Joins: of a stream with a table, a global table and a stream in a window; of tables by a foreign key")
def test_joins_are_those_of_the_records(own_server: ServerProcess, tmp_path: Path) -> None:
    inputs = ("orders", "customers", "regions", "prices", "payments")
    outputs = ("orders-of-customers", "priced-orders", "paid-orders", "customers-in-regions")
    topics.create(own_server.kafka, *(f"joins.{name}" for name in (*inputs, *outputs)), partitions=PARTITIONS)
    topics.fill(own_server.kafka, "joins.regions", [("de", "Europe"), ("jp", "Asia")])
    topics.fill(own_server.kafka, "joins.customers", [("1", "Ann@de"), ("2", "Bob@jp"), ("3", "Cid@fr")])
    topics.fill(own_server.kafka, "joins.prices", [("tea", "3"), ("rice", "2")])

    def joined(name: str) -> dict[str | None, str | None]:
        return topics.latest(topics.read(own_server.kafka, f"joins.{name}"))

    with Application("joins", own_server, tmp_path, "exactly_once_v2").start("state") as process:
        process.await_line("RUNNING")
        eventually(lambda: len(joined("customers-in-regions")) == 2, "the join of tables")
        topics.fill(own_server.kafka, "joins.orders", [("1", "tea"), ("2", "rice"), ("9", "tea")])
        topics.fill(own_server.kafka, "joins.payments", [("2", "card"), ("9", "cash")])
        eventually(lambda: len(joined("paid-orders")) == 2, "the join of streams")
        topics.fill(own_server.kafka, "joins.regions", [("fr", "Europe"), ("jp", None)])
        eventually(lambda: joined("customers-in-regions").get("3") is not None, "a region that comes later")
        eventually(lambda: joined("customers-in-regions")["2"] is None, "a region that is deleted")
    assert joined("orders-of-customers") == {"1": "tea for Ann@de", "2": "rice for Bob@jp"}
    assert joined("priced-orders") == {"1": "tea at 3", "2": "rice at 2", "9": "tea at 3"}
    assert joined("paid-orders") == {"2": "rice paid by card", "9": "tea paid by cash"}
    assert joined("customers-in-regions") == {"1": "Ann@de in Europe", "2": None, "3": "Cid@fr in Europe"}


class Transfers:
    """Sends transfers between accounts, without a pause, while `with` it."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.amounts: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self._kafka = kafka
        self._topic = topic
        self._random = Random(20)
        self._is_over = Event()
        self._sender = ThreadPoolExecutor(1)

    def __enter__(self) -> "Transfers":
        self._sending = self._sender.submit(self._send)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._sending.result(100)
        self._sender.shutdown()

    def _send(self) -> None:
        while not self._is_over.is_set():
            topics.fill(self._kafka, self._topic, [self._transfer() for _ in range(TRANSFERS)])

    def _transfer(self) -> tuple[str, str]:
        giver, taker = (f"a{number}" for number in self._random.sample(range(ACCOUNTS), 2))
        amount = self._random.randrange(1, 100)
        self.amounts[giver] -= amount
        self.amounts[taker] += amount
        self.changes.update((giver, taker))
        return f"t{self._random.randrange(1_000)}", f"{giver} {taker} {amount}"


@tool(STREAMS, "`exactly_once_v2`: sums preserved, each change counted once, over kills of two applications and of the server")
@pytest.mark.timeout(1_200)
def test_sums_are_preserved_over_kills(own_server: ServerProcess, tmp_path: Path) -> None:
    topics.create(own_server.kafka, "balances.transfers", "balances.balances", partitions=PARTITIONS)
    application = Application("balances", own_server, tmp_path, "exactly_once_v2")

    def reached() -> int:
        return topics.end(own_server.kafka, "balances.balances")

    running = {name: application.start(name) for name in ("one", "other")}
    try:
        with Transfers(own_server.kafka, "balances.transfers") as transfers:
            for victims in KILLED:
                before = reached()
                eventually(lambda: reached() > before + TRANSFERS, "new balances")  # noqa: B023
                for victim in victims:
                    if victim == "server":
                        own_server.kill()
                        own_server.start()
                        continue
                    running[victim].kill()
                    if victim == "other":
                        # The new process has no state of the one before.
                        application.wipe(victim)
                    running[victim] = application.start(victim)
        balances = topics.read(own_server.kafka, "balances.balances")
        while len(balances) < transfers.changes.total():
            count = len(balances)
            eventually(lambda: len(topics.read(own_server.kafka, "balances.balances")) > count, "all balances")  # noqa: B023
            balances = topics.read(own_server.kafka, "balances.balances")
    finally:
        for process in running.values():
            process.kill()

    by_account: dict[str | None, list[list[int]]] = {}
    for record in balances:
        by_account.setdefault(record.key, []).append([int(part) for part in (record.value or "").split()])
    assert {account: rows[-1] for account, rows in by_account.items()} == {
        account: [transfers.amounts[account], changes] for account, changes in transfers.changes.items()
    }
    for rows in by_account.values():
        assert [count for _, count in rows] == list(range(1, len(rows) + 1))
    assert sum(rows[-1][0] for rows in by_account.values()) == 0
