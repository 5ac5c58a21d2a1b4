"""Compares what a store holds after a restart with the answers that its writers got.

Every acknowledged commit is there once, at its own offsets and cursors; every other commit is there whole or not at all;
nothing else is there. The first commits of a thread survive before its later ones. Each broken rule has a name.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.model.ids import PartitionId, TopicId
from tests.support.history import Attempt, CommitId, History, Place, last_key, payload, token_of
from tests.support.observed import Observed, SeenBatch

LOST_COMMIT = "lost-commit"
LOST_RECORD = "lost-record"
MOVED_RECORD = "moved-record"
DUPLICATE_RECORD = "duplicate-record"
HALF_COMMIT = "half-commit"
PHANTOM_RECORD = "phantom-record"
WRONG_BYTES = "wrong-bytes"
DEAD_RECORD = "dead-record-served"
LATE_COMMIT = "late-commit"
FAILED_COMMIT = "failed-commit-visible"
OFFSET_GAP = "offset-gap"
OFFSET_REUSED = "offset-reused"
CURSOR_GAP = "cursor-gap"
CURSOR_REUSED = "cursor-reused"
CLOCK_STEP = "clock-step-back"
WRONG_STATE = "wrong-state"
WRONG_TOPICS = "wrong-topics"
WRONG_START = "wrong-start"
VIEWS_DIFFER = "views-differ"


class Violation(NamedTuple):
    rule: str
    text: str


class Verdict(NamedTuple):
    violations: Sequence[Violation]
    last: dict[tuple[int, int], int]
    places: dict[CommitId, Place]

    @property
    def rules(self) -> set[str]:
        return {violation.rule for violation in self.violations}

    def __str__(self) -> str:
        return "\n".join(f"{rule}: {text}" for rule, text in self.violations[:12]) or "nothing is wrong"


def judge(history: History, seen: Observed, *, may_lose_tail: bool = False) -> Verdict:
    """`may_lose_tail` is what `relaxed` durability allows at a power cut: the newest commits may be gone, in order."""
    return _Judge(history, seen, may_lose_tail).verdict()


def judge_acks(history: History) -> list[Violation]:
    """What is wrong with the answers alone, whatever the store holds: no place may be given out twice."""
    given: dict[tuple[PartitionId | None, int], CommitId] = {}
    found = []
    for id, place in history.places.items():
        attempt = history.attempts[id]
        starts = zip(attempt.appends, place.offsets, _cursors(attempt, place.cursor), strict=True)
        for (topic, number, tokens), offset, cursor in starts:
            partition = PartitionId(TopicId(topic), number)
            for step in range(len(tokens)):
                for rule, key in ((OFFSET_REUSED, (partition, offset + step)), (CURSOR_REUSED, (None, cursor + step))):
                    if given.setdefault(key, id) != id:
                        found.append(Violation(rule, f"{key} was given to commits {given[key]} and {id}"))
    return found


class _Judge:
    def __init__(self, history: History, seen: Observed, may_lose_tail: bool) -> None:
        self._history = history
        self._seen = seen
        self._may_lose_tail = may_lose_tail
        self._violations: list[Violation] = []
        self._last: dict[tuple[int, int], int] = {}
        self._survivors: list[Attempt] = []
        self._places: dict[CommitId, Place] = {}

    def verdict(self) -> Verdict:
        self._find_survivors()
        self._check_records()
        self._check_order()
        self._check_bounds()
        self._check_state()
        return Verdict(self._violations, self._last, self._places)

    def _blame(self, rule: str, text: str) -> None:
        self._violations.append(Violation(rule, text))

    def _find_survivors(self) -> None:
        history = self._history
        for (run, thread), mine in history.by_thread().items():
            last = int(self._seen.state.get(last_key(run, thread).encode(), b"0"))
            self._last[run, thread] = last
            acked = max((id.number for id in mine if id in history.acks), default=0)
            settled = history.settled.get((run, thread))
            if settled is not None:
                if last < settled:
                    self._blame(LOST_COMMIT, f"thread {run}/{thread} was at commit {settled} and is back at {last}")
                elif last > settled:
                    self._blame(LATE_COMMIT, f"thread {run}/{thread} stood at commit {settled} and is at {last} now")
            elif last < acked and not self._may_lose_tail:
                self._blame(LOST_COMMIT, f"commit {run}/{thread}/{acked} was acknowledged, the state stands at {last}")
            if last and CommitId(run, thread, last) not in history.attempts:
                self._blame(WRONG_STATE, f"{last_key(run, thread)} is {last}, which nobody wrote")
            if CommitId(run, thread, last) in history.failed:
                self._blame(FAILED_COMMIT, f"commit {run}/{thread}/{last} failed and took effect")
            self._survivors += [history.attempts[id] for id in mine if id.number <= last and id not in history.failed]

    def _check_records(self) -> None:
        survivors = {attempt.id for attempt in self._survivors}
        found = self._find_records(survivors)
        dropped = {topic for attempt in self._survivors for topic in attempt.drops}
        starts = self._starts()
        for attempt in self._survivors:
            place = self._history.places.get(attempt.id)
            seen_at: list[SeenBatch | None] = []
            for index, (topic, number, tokens) in enumerate(attempt.appends):
                partition = PartitionId(TopicId(topic), number)
                batch = found.get((attempt.id, index))
                seen_at.append(batch)
                known_end = place.offsets[index] + len(tokens) if place else None
                dead = topic in dropped or (known_end is not None and known_end <= starts.get(partition, 0))
                if dead and batch is not None:
                    self._blame(DEAD_RECORD, f"{tokens[0]} of {partition} is gone by order and still served")
                elif batch is None and not dead:
                    self._blame(LOST_RECORD, f"{tokens[0]} of {partition} is not there, its commit is")
                elif batch is not None and not self._is_whole(batch, partition, tokens):
                    self._blame(HALF_COMMIT, f"{tokens[0]} stands in {batch.partition} with other records than were sent")
            self._place(attempt, place, seen_at)

    def _find_records(self, survivors: set[CommitId]) -> dict[tuple[CommitId, int], SeenBatch]:
        """Every batch that is served, by the append that it came from; complains about batches that came from none."""
        origin = {
            token: (attempt.id, index)
            for attempt in self._history.attempts.values()
            for index, (_, _, tokens) in enumerate(attempt.appends)
            for token in tokens
        }
        found: dict[tuple[CommitId, int], SeenBatch] = {}
        for batch in self._seen.scanned:
            for record in batch.records:
                token = token_of(record.value)
                if record.value != payload(token):
                    self._blame(WRONG_BYTES, f"{batch.partition} at {record.offset} holds {record.value[:40]!r}")
                elif token not in origin:
                    self._blame(PHANTOM_RECORD, f"{token} in {batch.partition} at {record.offset} was never sent")
                elif origin[token][0] in self._history.failed:
                    self._blame(FAILED_COMMIT, f"{token} in {batch.partition} at {record.offset}: its commit had failed")
                elif origin[token][0] not in survivors:
                    self._blame(
                        HALF_COMMIT, f"{token} in {batch.partition} at {record.offset}, its commit's state is not there"
                    )
                elif found.setdefault(origin[token], batch) is not batch:
                    self._blame(DUPLICATE_RECORD, f"{token} is at cursor {found[origin[token]].cursor} and at {batch.cursor}")
        return found

    @staticmethod
    def _is_whole(batch: SeenBatch, partition: PartitionId, tokens: Sequence[str]) -> bool:
        return batch.partition == partition and [token_of(record.value) for record in batch.records] == list(tokens)

    def _place(self, attempt: Attempt, place: Place | None, seen_at: Sequence[SeenBatch | None]) -> None:
        """Where the commit stands: as acknowledged, or as found if its answer never came."""
        if place is None:
            cursors = list(_cursors(attempt, 0))
            firsts = {batch.cursor - step for batch, step in zip(seen_at, cursors, strict=True) if batch is not None}
            if len(firsts) > 1:
                self._blame(MOVED_RECORD, f"the batches of commit {attempt.id} do not follow each other: {sorted(firsts)}")
            if None in seen_at or not seen_at:
                return
            place = Place(min(firsts), tuple(batch.base_offset for batch in seen_at if batch is not None))
        self._places[attempt.id] = place
        for batch, cursor, offset in zip(seen_at, _cursors(attempt, place.cursor), place.offsets, strict=True):
            if batch is not None and (batch.cursor, batch.base_offset) != (cursor, offset):
                self._blame(
                    MOVED_RECORD,
                    f"commit {attempt.id} had offset {offset} and cursor {cursor} in {batch.partition},"
                    f" now {batch.base_offset} and {batch.cursor}",
                )

    def _check_order(self) -> None:
        placed = [attempt for attempt in self._survivors if attempt.id in self._places]
        cursors = [(self._places[attempt.id].cursor, attempt.records, attempt.id) for attempt in placed if attempt.records]
        self._check_tiles("the log", cursors, self._seen.end_cursor, CURSOR_GAP, CURSOR_REUSED)
        offsets: dict[PartitionId, list[tuple[int, int, CommitId]]] = defaultdict(list)
        for attempt in placed:
            for (topic, number, tokens), base in zip(attempt.appends, self._places[attempt.id].offsets, strict=True):
                offsets[PartitionId(TopicId(topic), number)].append((base, len(tokens), attempt.id))
        for partition, bounds in self._seen.partitions.items():
            self._check_tiles(str(partition), offsets[partition], bounds.end, OFFSET_GAP, OFFSET_REUSED)
        newest = 0
        for batch in self._seen.scanned:
            if batch.hlc < newest:
                self._blame(CLOCK_STEP, f"the batch at cursor {batch.cursor} has timestamp {batch.hlc} after {newest}")
            newest = batch.hlc

    def _check_tiles(self, where: str, tiles: list[tuple[int, int, CommitId]], end: int, gap: str, reused: str) -> None:
        """The commits must lie side by side from 0 to the end."""
        at = 0
        for first, count, id in sorted(tiles):
            if first != at:
                self._blame(
                    gap if first > at else reused, f"{where}: commit {id} begins at {first}, the one before ends at {at}"
                )
            at = first + count
        if at != end:
            self._blame(gap if at < end else LOST_RECORD, f"{where} ends at {end}, the commits in it at {at}")

    def _check_bounds(self) -> None:
        seen = self._seen
        counts: dict[int, int] = {}
        for attempt in self._survivors:
            for topic, count in attempt.creates:
                counts[topic] = max(count, counts.get(topic, 0))
        for attempt in self._survivors:
            for topic in attempt.drops:
                counts.pop(topic, None)
        expected = {PartitionId(TopicId(topic), number) for topic, count in counts.items() for number in range(count)}
        if expected != set(seen.partitions):
            self._blame(WRONG_TOPICS, f"partitions differ from the commits: {sorted(expected ^ set(seen.partitions))}")
        starts = self._starts()
        for partition, bounds in seen.partitions.items():
            if bounds.start != starts.get(partition, 0):
                self._blame(WRONG_START, f"{partition} starts at {bounds.start}, not {starts.get(partition, 0)}")
            if seen.next_offsets[partition] != bounds.end:
                self._blame(OFFSET_GAP, f"{partition} ends at {bounds.end} and goes on at {seen.next_offsets[partition]}")
            scanned = [record for batch in seen.scanned if batch.partition == partition for record in batch.records]
            if scanned != list(seen.fetched[partition]):
                self._blame(
                    VIEWS_DIFFER, f"{partition}: fetch gives {len(seen.fetched[partition])} records, scan {len(scanned)}"
                )

    def _check_state(self) -> None:
        expected = _state_after(self._survivors)
        for key in sorted(expected.keys() | self._seen.state.keys()):
            if expected.get(key) != self._seen.state.get(key):
                self._blame(WRONG_STATE, f"{key!r} is {self._seen.state.get(key)!r}, not {expected.get(key)!r}")

    def _starts(self) -> Mapping[PartitionId, int]:
        starts: dict[PartitionId, int] = {}
        for attempt in self._survivors:
            for topic, number, start in attempt.trims:
                partition = PartitionId(TopicId(topic), number)
                starts[partition] = max(start, starts.get(partition, 0))
        return starts


def _cursors(attempt: Attempt, first: int) -> Iterator[int]:
    for _, _, tokens in attempt.appends:
        yield first
        first += len(tokens)


def _state_after(commits: Sequence[Attempt]) -> dict[bytes, bytes]:
    """Threads keep to keys of their own, so the order between threads does not matter."""
    state: dict[bytes, bytes] = {}
    for attempt in commits:
        for prefix in attempt.drop_prefixes:
            state = {key: value for key, value in state.items() if not key.startswith(prefix.encode())}
        for key, value in attempt.puts:
            state.pop(key.encode(), None)
            if value is not None:
                state[key.encode()] = value.encode()
    return state
