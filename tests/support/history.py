"""What a writer tried and the answers that it got, kept outside the system under test.

A writer prints one line for each event; the parent process keeps the lines. Outcomes are never guessed: a commit without an
answer is unknown until a restart shows whether it took effect, and from then on that is settled too.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from tailrace.model.commit import Append, Changes
from tailrace.model.ids import Offset, PartitionId, TopicId
from tests.support.batches import append


class CommitId(NamedTuple):
    """Commits of one thread are numbered from 1 and sent in that order."""

    run: int
    thread: int
    number: int


class Attempt(msgspec.Struct, frozen=True, tag="attempt"):
    """A commit that is about to be sent. Records are named by tokens; `payload` says what bytes a token stands for."""

    id: CommitId
    creates: Sequence[tuple[int, int]] = ()
    drops: Sequence[int] = ()
    trims: Sequence[tuple[int, int, int]] = ()
    appends: Sequence[tuple[int, int, Sequence[str]]] = ()
    drop_prefixes: Sequence[str] = ()
    puts: Sequence[tuple[str, str | None]] = ()

    @property
    def records(self) -> int:
        return sum(len(tokens) for _, _, tokens in self.appends)


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    id: CommitId
    cursor: int
    hlc: int
    offsets: Sequence[int]


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    id: CommitId
    outcome: str
    error: str


class Note(msgspec.Struct, frozen=True, tag="note"):
    """Something else that the parent waits for."""

    text: str


Event = Attempt | Ack | Failure | Note


class Place(NamedTuple):
    """Where a commit stands in the log."""

    cursor: int
    offsets: tuple[int, ...]


class History:
    """All events of all runs on one folder."""

    def __init__(self) -> None:
        self.attempts: dict[CommitId, Attempt] = {}
        self.acks: dict[CommitId, Ack] = {}
        self.failed: set[CommitId] = set()
        self.settled: dict[tuple[int, int], int] = {}
        """The last commit of a thread that took effect, once a restart has shown it."""
        self.places: dict[CommitId, Place] = {}

    def record(self, event: Event) -> None:
        match event:
            case Attempt():
                self.attempts[event.id] = event
            case Ack():
                self.acks[event.id] = event
                self.places[event.id] = Place(event.cursor, tuple(event.offsets))
            case Failure() if event.outcome == "failed":
                self.failed.add(event.id)

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.record(event)

    def by_thread(self) -> dict[tuple[int, int], list[CommitId]]:
        """The commits of each run and thread, in order."""
        threads: dict[tuple[int, int], list[CommitId]] = {}
        for id in sorted(self.attempts):
            threads.setdefault((id.run, id.thread), []).append(id)
        return threads

    def settle(self, last: dict[tuple[int, int], int], places: dict[CommitId, Place]) -> None:
        """A restart has shown which commits took effect and where; no later restart may show anything else."""
        self.settled.update(last)
        self.places = dict(places)


def last_key(run: int, thread: int) -> str:
    """The state key to which every commit of a thread puts its number."""
    return f"last/{run}/{thread}"


def payload(token: str) -> bytes:
    """The record value of a token: of any length, and different for each."""
    name = token.encode()
    size = crc32(name) % 600
    return name + b"|" + (name[::-1] * (size // len(name) + 1))[:size]


def token_of(value: bytes) -> str:
    return value.partition(b"|")[0].decode(errors="replace")


def to_changes(attempt: Attempt) -> Changes:
    return Changes(
        creates=[(TopicId(topic), count) for topic, count in attempt.creates],
        drops=[TopicId(topic) for topic in attempt.drops],
        trims=[(PartitionId(TopicId(topic), number), Offset(start)) for topic, number, start in attempt.trims],
        appends=[_append(topic, number, tokens) for topic, number, tokens in attempt.appends],
        drop_prefixes=[prefix.encode() for prefix in attempt.drop_prefixes],
        puts=[(key.encode(), None if value is None else value.encode()) for key, value in attempt.puts],
    )


def encode_event(event: Event) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def decode_event(line: bytes) -> Event:
    return msgspec.json.decode(line, type=Event)


def _append(topic: int, number: int, tokens: Sequence[str]) -> Append:
    return append(PartitionId(TopicId(topic), number), *map(payload, tokens))
