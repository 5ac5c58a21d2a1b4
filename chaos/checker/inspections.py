"""`tailrace fsck` finds nothing wrong after a crash, and finds what was damaged on purpose (I18)."""

from collections.abc import Iterator

from chaos.checker.evidence import Evidence
from chaos.checker.violation import Found
from chaos.history import Inspected


def fsck_finding(evidence: Evidence) -> Iterator[Found]:
    for inspected in evidence.timeline.others(Inspected):
        if inspected.findings and not inspected.damaged:
            yield Found(f"fsck found: {'; '.join(inspected.findings)}", at=inspected.time)


def damage_not_found(evidence: Evidence) -> Iterator[Found]:
    for inspected in evidence.timeline.others(Inspected):
        if inspected.damaged and not inspected.findings:
            yield Found("files had been damaged, and fsck found nothing wrong", at=inspected.time)
