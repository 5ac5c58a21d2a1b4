"""The server answers when nothing is done to it, soon after a fault is over, and stops when it is told to (I17)."""

from collections.abc import Iterator

from chaos.checker.availability import Availability, shows_life
from chaos.checker.evidence import Evidence
from chaos.checker.violation import Found
from chaos.history import Phase, Stopped

SILENCE_SECONDS = 10.0
RECOVERY_SECONDS = 30.0
STOP_SECONDS = 10.0


def unavailable(evidence: Evidence) -> Iterator[Found]:
    """Nothing succeeded for 10 s, although no fault was in force; the first success after a fault may take 30 s."""
    availability = Availability(evidence.timeline)
    for span in availability.healthy:
        for silence in availability.silences(span):
            allowed = RECOVERY_SECONDS if silence.begins == span.begins else SILENCE_SECONDS
            if silence.seconds > allowed:
                message = f"nothing succeeded from {silence.begins:.1f} to {silence.ends:.1f} s, and no fault was in force"
                yield Found(message, at=silence.begins)


def slow_recovery(evidence: Evidence) -> Iterator[Found]:
    """A surface that was in use after the last fault was taken back did not succeed within 30 s."""
    timeline = evidence.timeline
    healed = next((phase.time for phase in timeline.others(Phase) if phase.name == "heal"), None)
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
        yield Found(
            f"nothing succeeded by {surface} within {RECOVERY_SECONDS:.0f} s after all faults had been taken back", at=healed
        )


def slow_stop(evidence: Evidence) -> Iterator[Found]:
    """It took longer than 10 s to stop, or ended with an error."""
    for stopped in evidence.timeline.others(Stopped):
        if stopped.seconds > STOP_SECONDS or stopped.code != 0:
            message = f"told to stop, the server took {stopped.seconds:.1f} s and ended with exit code {stopped.code}"
            yield Found(message, at=stopped.time)
