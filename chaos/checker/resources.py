"""What the server takes comes back near to what it took before the faults (I16).

The samples of the steady phase are the base; the newest of the final phase are held against it. Limits are wide: they are to
find what grows without end, not what a cache keeps.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from chaos.checker.evidence import Evidence
from chaos.checker.violation import Found
from chaos.history import Phase, Sample


class Allowance(NamedTuple):
    what: str
    of: Callable[[Sample], int]
    factor: float
    above: int


ALLOWANCES = (
    Allowance("MiB of memory", lambda sample: sample.rss_bytes >> 20, 1.5, 64),
    Allowance("open files", lambda sample: sample.files, 1.5, 32),
    Allowance("threads", lambda sample: sample.threads, 1.0, 16),
)


def leak(evidence: Evidence) -> Iterator[Found]:
    base = _in_phase(evidence, "steady")
    end = _in_phase(evidence, "final") or _in_phase(evidence, "heal")
    if not base or not end:
        return
    # The newest ones: before them, connections of workers and buffers of restarts may still have been there.
    end = end[-max(1, len(end) // 4) :]
    for allowance in ALLOWANCES:
        before, after = (median(allowance.of(sample) for sample in samples) for samples in (base, end))
        if after > before * allowance.factor + allowance.above:
            yield Found(f"the server took {before:.0f} {allowance.what} at first and {after:.0f} at the end", at=end[-1].time)


def _in_phase(evidence: Evidence, name: str) -> list[Sample]:
    phases = evidence.timeline.others(Phase)
    begins = next((phase.time for phase in phases if phase.name == name), float("inf"))
    ends = next((phase.time for phase in phases if phase.time > begins), float("inf"))
    return [sample for sample in evidence.timeline.others(Sample) if begins <= sample.time < ends]
