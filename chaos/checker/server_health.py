"""The health of the server's process.

It answers while no fault is active and soon after one is over, and stops when it is told to (I17). Its memory, files, threads
and disk space return to about what they were before the faults (I16). `tailrace fsck` finds nothing wrong after a crash, and
finds what was damaged on purpose (I18).
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from chaos.checker.availability import Availability, shows_life
from chaos.checker.evidence import Evidence
from chaos.checker.violation import RuleFinding
from chaos.history import FsckInspection, ResourceSample, RunPhase, ServerStopped

SILENCE_SECONDS = 10.0
RECOVERY_SECONDS = 30.0
STOP_SECONDS = 10.0


def unavailable(evidence: Evidence) -> Iterator[RuleFinding]:
    """Nothing succeeded for 10 s, although no fault was in force; the first success after a fault may take 30 s."""
    availability = Availability(evidence.timeline)
    for span in availability.healthy:
        for silence in availability.silences(span):
            allowed = RECOVERY_SECONDS if silence.begins == span.begins else SILENCE_SECONDS
            if silence.seconds > allowed:
                message = f"nothing succeeded from {silence.begins:.1f} to {silence.ends:.1f} s, and no fault was in force"
                yield RuleFinding(message, at=silence.begins)


def slow_recovery(evidence: Evidence) -> Iterator[RuleFinding]:
    """A surface that was in use after the last fault was taken back did not succeed within 30 s."""
    timeline = evidence.timeline
    healed = next((phase.time for phase in timeline.others(RunPhase) if phase.name == "heal"), None)
    if healed is None or timeline.lines[-1].time < healed + RECOVERY_SECONDS:
        return
    used_until = healed + RECOVERY_SECONDS - SILENCE_SECONDS
    used = {op.surface for op in timeline.ops.values() if healed <= timeline.time_at(op.begin) <= used_until}
    back = {
        op.surface
        for op in timeline.ops.values()
        if shows_life(op) and 0 <= timeline.time_at(op.end) - healed <= RECOVERY_SECONDS
    }
    for surface in sorted(used - back):
        yield RuleFinding(
            f"nothing succeeded by {surface} within {RECOVERY_SECONDS:.0f} s after all faults had been taken back", at=healed
        )


def slow_stop(evidence: Evidence) -> Iterator[RuleFinding]:
    """It took longer than 10 s to stop, or ended with an error."""
    for stopped in evidence.timeline.others(ServerStopped):
        if stopped.seconds > STOP_SECONDS or stopped.code != 0:
            message = f"told to stop, the server took {stopped.seconds:.1f} s and ended with exit code {stopped.code}"
            yield RuleFinding(message, at=stopped.time)


class ResourceLimit(NamedTuple):
    what: str
    of: Callable[[ResourceSample], int]
    factor: float
    above: int


RESOURCE_LIMITS = (
    ResourceLimit("MiB of memory", lambda sample: sample.rss_bytes >> 20, 1.5, 64),
    ResourceLimit("open files", lambda sample: sample.files, 1.5, 32),
    ResourceLimit("threads", lambda sample: sample.threads, 1.0, 16),
)


def leak(evidence: Evidence) -> Iterator[RuleFinding]:
    base = _in_phase(evidence, "steady")
    end = _in_phase(evidence, "final") or _in_phase(evidence, "heal")
    if not base or not end:
        return
    # Only the newest samples: before them, connections of workers and buffers of restarts may still be counted.
    end = end[-max(1, len(end) // 4) :]
    for allowance in RESOURCE_LIMITS:
        before, after = (median(allowance.of(sample) for sample in samples) for samples in (base, end))
        if after > before * allowance.factor + allowance.above:
            yield RuleFinding(
                f"the server took {before:.0f} {allowance.what} at first and {after:.0f} at the end", at=end[-1].time
            )


def _in_phase(evidence: Evidence, name: str) -> list[ResourceSample]:
    phases = evidence.timeline.others(RunPhase)
    begins = next((phase.time for phase in phases if phase.name == name), float("inf"))
    ends = next((phase.time for phase in phases if phase.time > begins), float("inf"))
    return [sample for sample in evidence.timeline.others(ResourceSample) if begins <= sample.time < ends]


def fsck_finding(evidence: Evidence) -> Iterator[RuleFinding]:
    for inspected in evidence.timeline.others(FsckInspection):
        if inspected.findings and not inspected.damaged:
            yield RuleFinding(f"fsck found: {'; '.join(inspected.findings)}", at=inspected.time)


def damage_not_found(evidence: Evidence) -> Iterator[RuleFinding]:
    for inspected in evidence.timeline.others(FsckInspection):
        if inspected.damaged and not inspected.findings:
            yield RuleFinding("files had been damaged, and fsck found nothing wrong", at=inspected.time)
