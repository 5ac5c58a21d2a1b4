"""What a copy reports about itself: how far it is, how fast, and what is wrong."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.limits import KIB, MIB
from tailrace.model.shadow import ShadowPartition, ShadowReport, ShadowState
from tailrace.shadow.admin import Partition
from tailrace.shadow.failures import ShadowError, TopicRefusedError
from tailrace.shadow.resumption import PartitionCopy, StoppedPartition

LEAST_BYTES = 256 * KIB
FIRST_BYTES = 4 * MIB
_FIRST_REFUSAL_SECONDS = 5.0
_LONGEST_REFUSAL_SECONDS = 300.0
_RATE_SECONDS = 5.0
_MOST_NOTES = 20
_NO_TIMESTAMP = 0


class TopicRefusal(NamedTuple):
    error: TopicRefusedError
    pause: float
    until: float
    """When it is tried again."""


class Progress:
    """Used on the event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set when the state changes."""
        self._failure: ShadowError | None = None
        self._state: ShadowState = "starting"
        self.records = 0
        self.bytes = 0
        self.groups = 0
        self.copies: dict[Partition, PartitionCopy] = {}
        self.stopped: dict[Partition, StoppedPartition] = {}
        """Partitions that can't be copied; with the number -1 whole topics."""
        self.refusals: dict[str, TopicRefusal] = {}
        """Topics that the target has refused records of, whatever session that was in."""
        self.budget = FIRST_BYTES
        """Bytes of the next transaction."""
        self.copied_to: dict[Partition, int] = {}
        """The timestamp of the last record that was copied, by partition."""
        self.behind: dict[Partition, int] = {}
        """Where partitions ended when they began to be copied, as far as that is not copied yet."""
        self._notes: dict[str, list[str]] = {}
        """What deserves attention, by subject."""
        self._samples: deque[tuple[float, int, int]] = deque()

    def begin(self) -> None:
        """Forget what the last session knew. Counters go on, and what was too much is tried with less."""
        self.copies.clear()
        self.stopped.clear()
        self.copied_to.clear()
        self.behind.clear()
        self._notes.clear()
        if self._failure is None:
            self._state = "starting"
        else:
            self.budget = max(LEAST_BYTES, self.budget // 2)

    def catch_up(self, partition: Partition) -> None:
        """Note that a partition is copied as far as it reached when that began, or will not be."""
        self.behind.pop(partition, None)
        if not self.behind and self._state == "back-filling":
            self.set_state("live")

    def refuse(self, error: TopicRefusedError) -> None:
        """Note that the target does not take records of a topic. It is left alone for a while, each time for longer."""
        before = self.refusals.get(error.topic)
        pause = _FIRST_REFUSAL_SECONDS if before is None else min(2 * before.pause, _LONGEST_REFUSAL_SECONDS)
        self.refusals[error.topic] = TopicRefusal(error, pause, time.monotonic() + pause)

    def set_state(self, state: ShadowState) -> None:
        self.changed.set()
        self._state = state
        self._failure = None

    def note(self, subject: str, notes: Sequence[str]) -> None:
        """Replace what deserves attention of a subject."""
        self._notes[subject] = list(notes)

    def fail(self, failure: ShadowError) -> None:
        self.changed.set()
        self._state = failure.state
        self._failure = failure

    @property
    def state(self) -> ShadowState:
        """Partitions that can't be copied make the whole copy a failed one, though the others go on."""
        return "failed" if self.stopped and self._state in ("back-filling", "live") else self._state

    def report(self) -> ShadowReport:
        error, advice = self._trouble()
        records_per_second, bytes_per_second = self._rates()
        notes = [note for own in self._notes.values() for note in own]
        if len(notes) > _MOST_NOTES:
            notes = [*notes[: _MOST_NOTES - 1], f"and {len(notes) - _MOST_NOTES + 1} more notes"]
        return ShadowReport(
            state=self.state,
            error=error,
            advice=advice,
            partitions=tuple(
                ShadowPartition(
                    topic,
                    number,
                    copy.position,
                    max(copy.end, copy.position),
                    copy.target_end,
                    copy.topic.origin.topic_id,
                    copy.start,
                )
                for (topic, number), copy in sorted(self.copies.items())
            ),
            records=self.records,
            bytes=self.bytes,
            records_per_second=records_per_second,
            bytes_per_second=bytes_per_second,
            lag_seconds=self._lag_seconds(),
            groups=self.groups,
            lost=tuple(stopped.lost for stopped in self.stopped.values() if stopped.lost is not None),
            notes=tuple(notes),
        )

    def _trouble(self) -> tuple[str | None, str | None]:
        if self._failure is not None:
            return self._failure.message, self._failure.advice
        if not self.stopped:
            return None, None
        first = next(iter(self.stopped.values()))
        more = f" ({len(self.stopped) - 1} more partitions are stopped)" if len(self.stopped) > 1 else ""
        return first.message + more, first.advice

    def _rates(self) -> tuple[int, int]:
        now = time.monotonic()
        self._samples.append((now, self.records, self.bytes))
        while self._samples[0][0] < now - _RATE_SECONDS and len(self._samples) > 1:
            self._samples.popleft()
        began, records, size = self._samples[0]
        passed = now - began
        if passed <= 0:
            return 0, 0
        return round((self.records - records) / passed), round((self.bytes - size) / passed)

    def _lag_seconds(self) -> float | None:
        """Return the age of the last copied record where most time is to be caught up, or `None` if that is not known."""
        behind = [partition for partition, copy in self.copies.items() if copy.position < copy.end]
        if not behind:
            return 0.0 if self._state == "live" else None
        times = [self.copied_to.get(partition, _NO_TIMESTAMP) for partition in behind]
        if min(times) <= _NO_TIMESTAMP:
            return None
        return max(0.0, round(time.time() - min(times) / 1000, 3))
