"""When the server was available: the times of its answers, the faults that excuse silence, and how fast it recovered."""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from chaos.checker.timeline import Op, Timeline
from chaos.history import Call, CallOutcome, Fault, PollCall, RunPhase, TakeCall


class TimeSpan(NamedTuple):
    begins: float
    ends: float

    @property
    def seconds(self) -> float:
        return self.ends - self.begins

    def meets(self, fault: Fault) -> bool:
        """Return whether the fault was active at any time of the span."""
        return fault.time < self.ends and max(fault.time, fault.until) > self.begins


class FaultRecovery(NamedTuple):
    fault: Fault
    seconds: float
    """Seconds from the restart of the server to the next answer."""


class Availability:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    @cached_property
    def answers(self) -> list[float]:
        return sorted(self._timeline.time_at(op.end) for op in self._timeline.ops.values() if shows_life(op))

    @cached_property
    def under_load(self) -> TimeSpan:
        """Return the span from the first call to the last one before the final reads."""
        final = next((phase.time for phase in self._timeline.others(RunPhase) if phase.name == "final"), float("inf"))
        begins = [begin for op in self._timeline.ops.values() if (begin := self._timeline.time_at(op.begin)) <= final]
        return TimeSpan(min(begins, default=0.0), max(begins, default=0.0))

    @cached_property
    def healthy(self) -> list[TimeSpan]:
        """Return the spans under load in which no fault was active."""
        spans: list[TimeSpan] = []
        begins, ends = self.under_load
        for fault in self._timeline.others(Fault):
            if begins < fault.time:
                spans.append(TimeSpan(begins, min(fault.time, ends)))
            begins = max(begins, over_at(fault))
        return [span for span in (*spans, TimeSpan(begins, ends)) if span.seconds > 0]

    def next_answer(self, after: float) -> float | None:
        index = bisect_right(self.answers, after)
        return self.answers[index] if index < len(self.answers) else None

    def silences(self, span: TimeSpan) -> Iterator[TimeSpan]:
        """Yield the spans between answers within a span."""
        last = span.begins
        for index in range(bisect_right(self.answers, span.begins), len(self.answers)):
            if self.answers[index] >= span.ends:
                break
            yield TimeSpan(last, self.answers[index])
            last = self.answers[index]
        yield TimeSpan(last, span.ends)

    @cached_property
    def longest_silence(self) -> TimeSpan:
        return max(self.silences(self.under_load), key=lambda span: span.seconds)

    @cached_property
    def longest_healthy_silence(self) -> float:
        """Return the most seconds between two answers while no fault was active.

        The first answer after a fault counts as a recovery instead.
        """
        return max(
            (silence.seconds for span in self.healthy for silence in self.silences(span) if silence.begins > span.begins),
            default=0.0,
        )

    def recoveries(self) -> Iterator[FaultRecovery]:
        """Yield how the server recovered from each fault for which it was down."""
        for fault in self._timeline.others(Fault):
            answer = self.next_answer(over_at(fault))
            if fault.down and answer is not None:
                yield FaultRecovery(fault, answer - over_at(fault))


def over_at(fault: Fault) -> float:
    """Return when the fault was reverted. A server that was down has been started by then, but need not be ready."""
    return max(fault.time, fault.started if fault.down and fault.started >= 0 else fault.until)


def shows_life(op: Op[Call]) -> bool:
    """Return whether the answer shows that the server is alive. Clients answer a poll without records by themselves."""
    return op.outcome is CallOutcome.OK and (not isinstance(op.what, PollCall | TakeCall) or bool(op.answer.seen))
