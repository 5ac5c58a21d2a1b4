"""What a fault has left in a data folder: `fsck` before and after, everything the store serves, and the judge's verdict."""

from pathlib import Path

from tailrace.log.data_folder import LOG_FOLDER
from tailrace.log.fsck import run_fsck
from tailrace.model.errors import InvariantError, TailraceError
from tailrace.model.limits import Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.history import History
from tests.support.judge import Verdict, Violation, judge, judge_acks
from tests.support.observed import UnreadableError, observe

DAMAGED = "damaged"
REFUSED = "refused"
UNREADABLE = "unreadable"


def hold_inquest(folder: Path, history: History, *, may_lose_tail: bool = False) -> Verdict:
    """Open the folder as a restart would, and settle in the history what was unknown."""
    found = judge_acks(history)
    if (folder / LOG_FOLDER).exists():
        found += _damages(folder, "before opening")
    try:
        store = EmbeddedStore.open(folder, limits=Limits(min_free_bytes=0))
        try:
            verdict = judge(history, observe(store), may_lose_tail=may_lose_tail)
        finally:
            store.close()
    except (TailraceError, InvariantError) as error:
        return Verdict([*found, Violation(REFUSED, f"{type(error).__name__}: {error}")], {}, {})
    except UnreadableError as error:
        return Verdict([*found, Violation(UNREADABLE, str(error))], {}, {})
    found += _damages(folder, "after opening")
    history.settle(verdict.last, verdict.places)
    return verdict._replace(violations=[*found, *verdict.violations])


def _damages(folder: Path, when: str) -> list[Violation]:
    return [Violation(DAMAGED, f"{when}: {finding.where}: {finding.what}") for finding in run_fsck(folder).findings]
