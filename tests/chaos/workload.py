"""The workload of a chaos writer's threads: commits of every kind, each of which can be checked afterwards.

Threads share one topic, which only the main thread trims, and only while no other commit is in flight. Each thread has a
partition of its own that it trims to known offsets, and creates topics of its own that it drops once it knows that they
exist. So for every commit without an answer, the records must still be there if the commit is.
"""

from collections.abc import Sequence
from random import Random
from typing import Literal

from tailrace.store.contract import Store
from tests.support.history import Ack, Attempt, CommitId, last_key

SHARED, PRIVATE, FIRST_SCRATCH = 1, 2, 1000
SHARED_PARTITIONS = 3
MOST_THREADS, MOST_SCRATCH_TOPICS = 64, 4096
KEPT_RECORDS = 30
"""The number of records of each shared partition that a trim leaves."""


class MainPlan:
    """The main thread, which creates the topics and trims the shared ones."""

    def __init__(self, run: int, threads: int) -> None:
        self._run = run
        self._threads = threads
        self._number = 0

    def set_up(self, store: Store) -> Attempt:
        """Create the topics of all runs, and drop topics that a killed run has left behind."""
        have = {partition.topic_id for partition in store.partitions()}
        return self._attempt(
            creates=[(SHARED, SHARED_PARTITIONS), (PRIVATE, self._threads + 1)],
            drops=sorted(topic for topic in have if topic >= FIRST_SCRATCH),
        )

    def trim(self, store: Store) -> Attempt:
        bounds = {partition: store.bounds(partition) for partition in store.partitions() if partition.topic_id == SHARED}
        return self._attempt(
            trims=[(SHARED, partition.number, max(start, end - KEPT_RECORDS)) for partition, (start, end) in bounds.items()]
        )

    def _attempt(
        self,
        creates: Sequence[tuple[int, int]] = (),
        drops: Sequence[int] = (),
        trims: Sequence[tuple[int, int, int]] = (),
    ) -> Attempt:
        self._number += 1
        puts = [(last_key(self._run, 0), str(self._number))]
        return Attempt(CommitId(self._run, 0, self._number), creates=creates, drops=drops, trims=trims, puts=puts)


class ThreadPlan:
    """One worker thread, which decides by its answers so far what to send next."""

    def __init__(self, run: int, thread: int, seed: int) -> None:
        self._run = run
        self._thread = thread
        self._random = Random(f"{seed}/{run}/{thread}")
        self._number = 0
        self._scratch = FIRST_SCRATCH + (run * MOST_THREADS + thread) * MOST_SCRATCH_TOPICS
        self._scratch_state: Literal["none", "asked", "there"] = "none"
        self._private_end = 0

    def next(self) -> Attempt:
        self._number += 1
        kind = self._random.random()
        if kind < 0.12 and self._scratch_state != "asked":
            return self._make_scratch() if self._scratch_state == "none" else self._drop_scratch()
        if kind < 0.2:
            return self._attempt()
        if kind < 0.35 and self._private_end:
            start = self._random.randint(max(0, self._private_end - 12), self._private_end)
            return self._attempt(trims=[(PRIVATE, self._thread, start)], appends=self._appends())
        return self._attempt(appends=self._appends())

    def answered(self, attempt: Attempt, ack: Ack) -> None:
        for (topic, _, tokens), base in zip(attempt.appends, ack.offsets, strict=True):
            if topic == PRIVATE:
                self._private_end = base + len(tokens)
        if attempt.creates:
            self._scratch_state = "there"

    def _appends(self) -> list[tuple[int, int, list[str]]]:
        places = [(SHARED, number) for number in range(SHARED_PARTITIONS)] + [(PRIVATE, self._thread)] * 2
        chosen = self._random.sample(places, self._random.randint(1, 3))
        name = f"{self._run}.{self._thread}.{self._number}"
        return [
            (topic, number, [f"{name}.{index}.{copy}" for copy in range(self._random.randint(1, 3))])
            for index, (topic, number) in enumerate(chosen)
        ]

    def _make_scratch(self) -> Attempt:
        self._scratch_state = "asked"
        self._scratch += 1
        name = f"{self._run}.{self._thread}.{self._number}"
        return self._attempt(
            creates=[(self._scratch, 2)],
            appends=[(self._scratch, 1, [f"{name}.s"]), (SHARED, 0, [f"{name}.t"])],
            puts=[(f"scratch/{self._scratch}/name", name)],
        )

    def _drop_scratch(self) -> Attempt:
        self._scratch_state = "none"
        return self._attempt(drops=[self._scratch], drop_prefixes=[f"scratch/{self._scratch}/"])

    def _attempt(
        self,
        creates: Sequence[tuple[int, int]] = (),
        drops: Sequence[int] = (),
        trims: Sequence[tuple[int, int, int]] = (),
        appends: Sequence[tuple[int, int, Sequence[str]]] = (),
        drop_prefixes: Sequence[str] = (),
        puts: Sequence[tuple[str, str | None]] = (),
    ) -> Attempt:
        note = f"note/{self._run}/{self._thread}"
        marks = [
            (last_key(self._run, self._thread), str(self._number)),
            (f"{note}/{self._number}", f"{len(appends)} appends"),
            (f"{note}/{self._number - 3}", None),
        ]
        id = CommitId(self._run, self._thread, self._number)
        return Attempt(id, creates, drops, trims, appends, drop_prefixes, [*marks, *puts])
