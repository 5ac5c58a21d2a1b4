"""Frameworks of Python that process streams, on a real server, over kills: FastStream, Faust and Quix Streams."""

import itertools
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.tools import topics
from tests.compat.tools.programs import FASTSTREAM, FAUST, FOLDER, QUIX, python_of, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess
from tests.support.server import ServerProcess

PARTITIONS = 4
WORDS = [f"w{number}" for number in range(20)]
ROUND = 1_000
Start = Callable[[], LoggedProcess]


@pytest.fixture
def kafka(own_server: ServerProcess) -> str:
    topics.create(own_server.kafka, "source", "target", partitions=PARTITIONS)
    return own_server.kafka


def starter(package: str, program: str, folder: Path, *arguments: str) -> Start:
    """Return what starts a program of `frameworks/` by the interpreter of its package."""
    numbers = itertools.count()

    def start() -> LoggedProcess:
        command = [str(python_of(package)), str(FOLDER / "frameworks" / program), *arguments]
        return LoggedProcess(command, folder / f"{package}-{next(numbers)}.log")

    return start


def words(count: int) -> list[tuple[str, str | None]]:
    return [(WORDS[number % len(WORDS)], str(number)) for number in range(count)]


def target(kafka: str) -> list[topics.Read]:
    return topics.read(kafka, "target")


def counted(kafka: str) -> dict[str | None, str | None]:
    return topics.latest(target(kafka))


def expected(count: int) -> dict[str | None, str | None]:
    return {word: str(number) for word, number in Counter(word for word, _ in words(count)).items()}


@tool(
    FASTSTREAM,
    "Subscriber and publisher, with aiokafka and with confluent-kafka: nothing lost over kills of the program and of the "
    "server",
    short=True,
)
@pytest.mark.parametrize("client", ["aiokafka", "confluent"])
def test_what_faststream_reads_it_writes_over_kills(kafka: str, own_server: ServerProcess, tmp_path: Path, client: str) -> None:
    start = starter("faststream", "faststream_app.py", tmp_path, kafka, "source", "target", client)

    def written() -> set[str | None]:
        return set(topics.values(target(kafka)))

    sent: set[str | None] = set()
    for number in range(3):
        before = topics.end(kafka, "target")
        values = [f"r{number}v{each}" for each in range(ROUND)]
        sent.update(value.upper() for value in values)
        with start() as process:
            topics.fill(kafka, "source", values)
            eventually(lambda: topics.end(kafka, "target") > before + 10 or process.has_ended, "more records")  # noqa: B023
            if number == 1:
                own_server.kill()
                own_server.start()
            if number > 0:
                eventually(lambda: written() >= sent or process.has_ended, "all records")
                assert written() == sent, process.last_words


@tool(FAUST, "An agent with a table: nothing lost over kills; counts come back from the compacted changelog")
def test_faust_counts_and_restores_its_table(kafka: str, own_server: ServerProcess, tmp_path: Path) -> None:
    start = starter("faust-streaming", "faust_app.py", tmp_path, kafka, "source", "target", str(tmp_path / "faust"))
    for number in (1, 2, 3):
        before = topics.end(kafka, "target")
        with start() as process:
            topics.fill(kafka, "source", words(ROUND))
            eventually(lambda: topics.end(kafka, "target") > before + 10 or process.has_ended, "counts")  # noqa: B023
            if number == 2:
                own_server.kill()
                own_server.start()
                # Of what it has read, Faust may drop some while the server is away, and reads it again at its next start.
                continue
            eventually(lambda: _reached(kafka, number) or process.has_ended, "all counts")  # noqa: B023
            assert _reached(kafka, number), process.last_words
    eventually(lambda: topics.compacted_records(own_server.url) > 0, "a compaction")


def _reached(kafka: str, rounds: int) -> bool:
    """Whether every word has been counted as often as it was sent, at least: Faust counts again what it had not committed."""
    found = counted(kafka)
    return all(int(found.get(word) or 0) >= int(count or 0) for word, count in expected(rounds * ROUND).items())


@tool(
    QUIX,
    "State with `exactly-once`: each record counted once, over kills of the program and of the server; counts come back from "
    "the changelog",
)
def test_quix_counts_exactly_once_and_restores_its_state(kafka: str, own_server: ServerProcess, tmp_path: Path) -> None:
    state = tmp_path / "state"
    start = starter("quixstreams", "quix_app.py", tmp_path, kafka, "source", "target", str(state))
    for number in range(4):
        with start() as process:
            before = topics.end(kafka, "target")
            topics.fill(kafka, "source", words(ROUND))
            eventually(lambda: topics.end(kafka, "target") > before + 50 or process.has_ended, "counts")  # noqa: B023
            if number == 1:
                own_server.kill()
                own_server.start()
            if number == 3:
                eventually(lambda: len(target(kafka)) >= 4 * ROUND or process.has_ended, "all counts")
                assert counted(kafka) == expected(4 * ROUND), process.last_words
        if number == 2:
            shutil.rmtree(state)
    by_word = {word: [int(each.value or 0) for each in target(kafka) if each.key == word] for word in WORDS}
    assert by_word == {word: list(range(1, 4 * ROUND // len(WORDS) + 1)) for word in WORDS}
