"""The figures of a run in the report, counted from its history."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from chaos.checker.availability import Availability, TimeSpan
from chaos.checker.judging import judge_timeline
from chaos.checker.rules import RULES
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Judgement
from chaos.history import CallOutcome, Fault, ResourceSample, read_lines
from chaos.run_record import HISTORY_FILE, RunRecord, read_record


class OperationFigures(NamedTuple):
    """Calls of one kind by one surface."""

    kind: str
    surface: str
    outcome: CallOutcome


class RunFigures(NamedTuple):
    folder: Path
    record: RunRecord
    judgement: Judgement
    operations: Counter[OperationFigures]
    faults: Counter[str]
    recoveries: dict[str, list[float]]
    """For each kind of fault, the seconds from the start of the server to its next answer."""
    longest_silence: TimeSpan
    faults_of_longest_silence: tuple[str, ...]
    longest_healthy_silence: float
    """Seconds without an answer while no fault was active, and none had just ended."""
    most_memory_bytes: int
    judged: dict[str, int]
    """For each rule, how many calls or lines it checked."""

    def count(self, *outcomes: CallOutcome) -> int:
        return sum(number for operation, number in self.operations.items() if operation.outcome in outcomes or not outcomes)


def read_run(folder: Path) -> RunFigures:
    """Judge a run from its history and count what is in it."""
    return measure(folder, read_record(folder), Timeline(read_lines(folder / HISTORY_FILE)))


def measure(folder: Path, record: RunRecord, timeline: Timeline) -> RunFigures:
    availability = Availability(timeline)
    recoveries: dict[str, list[float]] = {}
    for recovery in availability.recoveries():
        recoveries.setdefault(recovery.fault.kind, []).append(recovery.seconds)
    return RunFigures(
        folder=folder,
        record=record,
        judgement=judge_timeline(timeline),
        operations=Counter(
            OperationFigures(str(op.what.__struct_config__.tag), op.surface, op.outcome) for op in timeline.ops.values()
        ),
        faults=Counter(fault.kind for fault in timeline.others(Fault)),
        recoveries=recoveries,
        longest_silence=availability.longest_silence,
        faults_of_longest_silence=tuple(
            dict.fromkeys(fault.kind for fault in timeline.others(Fault) if availability.longest_silence.meets(fault))
        ),
        longest_healthy_silence=availability.longest_healthy_silence,
        most_memory_bytes=max((sample.rss_bytes for sample in timeline.others(ResourceSample)), default=0),
        judged={rule.name: rule.count(timeline) for rule in RULES},
    )
