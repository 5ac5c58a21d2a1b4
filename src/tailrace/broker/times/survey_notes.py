"""What the survey writes down: how far it is in each partition, what it has found there, and what may be forgotten.

Findings are saved some dozens at a time, in commits of their own. What could not be saved stays here and goes with the next.
Called by one at a time, by the survey.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits.commit import Committer
from tailrace.broker.commits.proposal import Change
from tailrace.broker.times.runs import Chunk, Run, SavedTimes, extended
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.ids import Offset, PartitionId
from tailrace.store.contract import Store

_NOWHERE = Offset(-1)
_UNSEEN = OffsetBounds(_NOWHERE, _NOWHERE)


class _Progress(NamedTuple):
    seen: OffsetBounds
    """Of the partition when all of it was dealt with."""
    start: Offset
    """What was saved of offsets before it is forgotten."""
    end: Offset
    """Up to here its times are saved."""
    last_chunk: Offset | None


class SurveyNotes:
    def __init__(self, store: Store, committer: Committer, topics: Topics) -> None:
        self._committer = committer
        self._topics = topics
        self._saved = SavedTimes(store)
        self._progress: dict[PartitionId, _Progress] = {}
        self._found: dict[PartitionId, list[Run]] = {}
        self._gone: set[tuple[PartitionId, Offset]] = set()
        """Chunks of records that are gone."""

    @property
    def unsaved(self) -> int:
        return len(self._gone) + sum(map(len, self._found.values()))

    def keep_only(self, partitions: Sequence[PartitionId]) -> None:
        """The others are gone."""
        for gone in self._progress.keys() - set(partitions):
            del self._progress[gone]

    def is_done(self, partition: PartitionId, bounds: OffsetBounds) -> bool:
        """Whether all of the partition was dealt with when it had these bounds."""
        progress = self._progress.get(partition)
        return bounds.start == bounds.end if progress is None else progress.seen == bounds

    def done(self, partition: PartitionId, bounds: OffsetBounds) -> None:
        self._progress[partition] = self._progress[partition]._replace(seen=bounds)

    def end(self, partition: PartitionId, bounds: OffsetBounds) -> Offset:
        """Up to where the partition is surveyed. Reads from the disk."""
        progress = self._progress.get(partition)
        if progress is None:
            progress = self._load(partition)
        if progress.start != bounds.start:
            chunks = self._saved.chunks(partition)
            self._gone.update((partition, chunk.first) for chunk in chunks if chunk.end <= bounds.start)
            progress = self._progress[partition] = progress._replace(start=bounds.start)
        found = self._found.get(partition)
        return max(found[-1].end if found else progress.end, bounds.start)

    def add(self, partition: PartitionId, run: Run) -> None:
        self._found.setdefault(partition, []).append(run)

    def changed_chunks(self) -> Mapping[PartitionId, Sequence[Chunk]]:
        """All that was found, as it is to be saved. Reads from the disk."""
        return {partition: extended(self._last_chunk(partition), runs) for partition, runs in self._found.items()}

    async def save(self, chunks: Mapping[PartitionId, Sequence[Chunk]]) -> None:
        """Save these, which are all that was found, and forget what is gone."""

        def decide() -> Changes | None:
            puts: list[tuple[bytes, bytes | None]] = [
                (keys.times_key(partition, first), None) for partition, first in self._gone if self._is_alive(partition)
            ]
            for partition, changed in chunks.items():
                if self._is_alive(partition):
                    puts += ((keys.times_key(partition, chunk.first), chunk.packed) for chunk in changed)
            return Changes(puts=puts) if puts else None

        await self._committer.submit(Change(decide, lambda _: None))
        self._found = {}
        self._gone = set()
        for partition, changed in chunks.items():
            first, end = changed[-1].first, changed[-1].end
            self._progress[partition] = self._progress[partition]._replace(end=end, last_chunk=first)

    def _load(self, partition: PartitionId) -> _Progress:
        last = None
        for last in self._saved.chunks(partition):  # noqa: B007  the last one is wanted
            pass
        if last is None:
            return _Progress(_UNSEEN, _NOWHERE, Offset(0), None)
        return _Progress(_UNSEEN, _NOWHERE, last.end, last.first)

    def _last_chunk(self, partition: PartitionId) -> Chunk | None:
        first = self._progress[partition].last_chunk
        return None if first is None or (partition, first) in self._gone else self._saved.chunk(partition, first)

    def _is_alive(self, partition: PartitionId) -> bool:
        """Of a topic that is being deleted all times go with it, and none must come after."""
        return self._topics.by_id(partition.topic_id) is not None
