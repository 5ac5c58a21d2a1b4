"""Everything at once for minutes, while the server and its clients are killed: nothing acked is lost, nothing is skipped.

Only when it is asked for: `pytest tests/integration/client --soak-minutes 5`. `--soak-seed` repeats the choices of a run.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import Client
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.server import ServerProcess
from tests.support.soak import SoakClient
from tests.support.soak_worker import EVENTS, GROUP, JOBS, MAX_DELIVERIES, POISON, WORKERS

PARTITIONS = 3
QUIET_SECONDS = (1.0, 4.0)
"""Between two kills."""


class Soak:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = ServerProcess(folder / "data").start()
        self.server.flags = ("--http", self.server.url.removeprefix("http://"))
        self.url = self.server.url
        self.api = Api(self.url)
        for topic in (EVENTS, JOBS):
            self.api.create_topic(topic, PARTITIONS)
        roles = ("publisher", "consumer", "consumer", "worker", "worker", "follower")
        self.clients = [SoakClient(role, self.url, folder, number) for number, role in enumerate(roles)]
        self.kills = 0

    def run(self, seconds: float) -> None:
        for client in self.clients:
            client.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or self.kills < 3:
            time.sleep(self.chance.uniform(*QUIET_SECONDS))
            for client in self.clients:
                client.check_alive()
            self.kill_something()
            self.kills += 1

    def kill_something(self) -> None:
        victim = self.chance.choice([None, None, *self.clients])
        if victim is None:
            self.server.kill()
            self.server.start()
        else:
            victim.kill()
            victim.start()

    def end(self) -> None:
        """Publishers first, so that the others come to the end of what there is."""
        for client in sorted(self.clients, key=lambda client: client.role != "publisher"):
            if client.role == "publisher":
                client.end()
        eventually(lambda: self.lag() == 0 and self.group_lag() == 0, "all is consumed and settled", 120)
        last = self.api.ask("/health")["end_cursor"]
        self.api.ask("/api/topics/publish", {"messages": [{"topic": EVENTS, "value": -1}]})
        (follower,) = [client for client in self.clients if client.role == "follower"]
        eventually(lambda: any(cursor >= last for cursor, _, _ in follower.said("followed")), "all is followed", 60)
        for client in self.clients:
            if client.role in ("consumer", "worker"):
                client.end()

    def close(self) -> None:
        for client in self.clients:
            client.kill()
        self.server.kill()

    def lag(self) -> int:
        queues = self.api.ask("/api/queues")["queues"]
        return sum(queue["lag"] for queue in queues) if queues else -1

    def group_lag(self) -> int:
        offsets = self.api.ask(f"/api/groups/{GROUP}/offsets?topic={EVENTS}")["offsets"]
        ends = {partition: len(values) for partition, values in self.stored(EVENTS).items()}
        done = {each["partition_id"]: each["committed_offset"] for each in offsets}
        return sum(end - done.get(partition, 0) for partition, end in ends.items())

    def stored(self, topic: str) -> dict[int, list[Any]]:
        """Values by partition, in the order of offsets; read by SQL, not by the client."""
        found: dict[int, list[Any]] = {partition: [] for partition in range(PARTITIONS)}
        for partition, value in self.api.sql(f"SELECT partition, value FROM {topic} ORDER BY partition, offset"):
            found[partition].append(int(value))
        return found

    def said(self, role: str, *words: str) -> list[Any]:
        return [line for client in self.clients if client.role == role for line in client.said(*words)]


@pytest.fixture
def soak(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Soak]:
    if not request.config.getoption("--soak-minutes", default=0):
        pytest.skip("runs with --soak-minutes 5")
    seed = request.config.getoption("--soak-seed", default=None)
    seed = random.randrange(1_000_000) if seed is None else seed
    print(f"--soak-seed {seed}")
    running = Soak(tmp_path, seed)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.timeout(3_600)
def test_nothing_acked_is_lost_and_nothing_is_skipped_while_everything_is_killed(
    soak: Soak, request: pytest.FixtureRequest
) -> None:
    soak.run(60 * request.config.getoption("--soak-minutes"))
    soak.end()
    events, jobs = soak.stored(EVENTS), soak.stored(JOBS)
    everything_published_is_stored_once_at_its_place(soak, {EVENTS: events, JOBS: jobs})
    every_offset_was_consumed(soak, events)
    every_event_was_followed_once(soak, {EVENTS: events, JOBS: jobs})
    every_job_was_acked_once_or_is_a_dead_letter(soak, [number for numbers in jobs.values() for number in numbers])
    print(
        f"{soak.kills} kills, {sum(map(len, events.values()))} events, {sum(map(len, jobs.values()))} jobs,"
        f" {len(soak.said('worker', 'acked'))} acks, {len(soak.said('worker', 'late'))} late,"
        f" {len(soak.said('worker', 'unsettled'))} unsettled"
    )


def everything_published_is_stored_once_at_its_place(soak: Soak, stored: dict[str, dict[int, list[Any]]]) -> None:
    published = soak.said("publisher", "published")
    assert len(published) > 100
    for topic, number, partition, offset in published:
        assert stored[topic][partition][offset] == number
    for topic, partitions in stored.items():
        counts = Counter(number for numbers in partitions.values() for number in numbers)
        assert max(counts.values()) == 1, f"{topic} has {counts.most_common(3)}"
        assert counts.keys() - {-1} <= {number for (number,) in soak.said("publisher", "sending")}


def every_offset_was_consumed(soak: Soak, events: dict[int, list[Any]]) -> None:
    seen = soak.said("consumer", "seen")
    for partition, offset, number in seen:
        assert events[partition][offset] == number
    places = {(partition, offset) for partition, offset, _ in seen}
    assert places >= {
        (partition, offset) for partition, numbers in events.items() for offset in range(len(numbers)) if numbers[offset] >= 0
    }


def every_event_was_followed_once(soak: Soak, stored: dict[str, dict[int, list[Any]]]) -> None:
    followed = soak.said("follower", "followed")
    cursors = [cursor for cursor, _, _ in followed]
    assert cursors == sorted(set(cursors))
    for topic, partitions in stored.items():
        # The follower of the next life goes on after the last event that it spoke of, so none comes twice.
        assert sorted(number for _, name, number in followed if name == topic) == sorted(
            number for numbers in partitions.values() for number in numbers
        )


def every_job_was_acked_once_or_is_a_dead_letter(soak: Soak, jobs: list[int]) -> None:
    acked = Counter(number for (number,) in soak.said("worker", "acked"))
    tried = {number for (number,) in soak.said("worker", "acking")}
    letters = Counter(number for numbers in soak.stored(f"{JOBS}.dead_letters").values() for number in numbers)
    assert max(acked.values()) == 1
    assert max(letters.values(), default=1) == 1
    assert not acked.keys() & letters.keys()
    assert set(jobs) <= tried | letters.keys()
    for number in jobs:
        if number % POISON == 0:
            assert letters[number] == 1
    # What was tried and is neither acked nor dead was acked by one whose answer was lost, or who was killed before it said so.
    unknown = tried - acked.keys() - letters.keys()
    with Client(soak.url) as client:
        queue = client.subscriber().subscribe_queue(JOBS, WORKERS, max_deliveries=MAX_DELIVERIES)
        assert queue.poll(timeout=0) == [], f"{len(unknown)} jobs have an unknown outcome, and some come again"
