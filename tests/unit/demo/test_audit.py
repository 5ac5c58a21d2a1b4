"""The demo's audit notices every way in which a promise can be broken."""

from collections.abc import Callable

import pytest

from demo.audit import audit
from demo.writers import ORDERS, PAYMENTS, Frame, History, Place

Found = dict[Place, Frame]


def both(frame: Frame, offset: int) -> dict[Place, Frame]:
    return {Place(ORDERS, 0, offset): frame, Place(PAYMENTS, 0, offset): frame}


def kept() -> tuple[History, Found]:
    """Three acked frames and one in doubt that made it."""
    history = History()
    found: Found = {}
    for number in range(3):
        places = both(Frame(0, number), number)
        history.acked[Frame(0, number)] = tuple(places)
        found |= places
    history.in_doubt.add(Frame(0, 3))
    return history, dict(sorted((found | both(Frame(0, 3), 3)).items()))


def lose_an_acked_frame(found: Found) -> None:
    del found[Place(ORDERS, 0, 1)], found[Place(PAYMENTS, 0, 1)]


def move_a_record(found: Found) -> None:
    found[Place(ORDERS, 0, 1)], found[Place(ORDERS, 0, 2)] = found[Place(ORDERS, 0, 2)], found[Place(ORDERS, 0, 1)]


def repeat_a_record(found: Found) -> None:
    found[Place(ORDERS, 0, 4)] = Frame(0, 3)


def tear_the_frame_in_doubt(found: Found) -> None:
    del found[Place(PAYMENTS, 0, 3)]


def leave_a_gap(found: Found) -> None:
    found[Place(ORDERS, 0, 9)] = found.pop(Place(ORDERS, 0, 3))


def invent_a_record(found: Found) -> None:
    found |= both(Frame(7, 0), 4)


def broken_claims(history: History, found: Found) -> set[str]:
    return {finding.claim for finding in audit(history, found) if finding.violations}


def test_a_history_that_was_kept_passes() -> None:
    assert broken_claims(*kept()) == set()


def test_a_frame_in_doubt_may_be_gone_whole() -> None:
    history, found = kept()
    del found[Place(ORDERS, 0, 3)], found[Place(PAYMENTS, 0, 3)]
    assert broken_claims(history, found) == set()


@pytest.mark.parametrize(
    ("break_it", "claim"),
    [
        (lose_an_acked_frame, "acked records are where the ack said"),
        (move_a_record, "acked records are where the ack said"),
        (move_a_record, "each writer's records are in order"),
        (repeat_a_record, "no record is there twice"),
        (tear_the_frame_in_doubt, "a frame is in both topics or in none"),
        (leave_a_gap, "offsets have no gap"),
        (invent_a_record, "nothing is there that was not sent"),
    ],
)
def test_a_broken_promise_is_noticed(break_it: Callable[[Found], None], claim: str) -> None:
    history, found = kept()
    break_it(found)
    assert claim in broken_claims(history, found)
