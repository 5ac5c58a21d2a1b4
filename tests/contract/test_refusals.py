"""An invalid commit is refused with an error that says why, and changes nothing."""

from collections.abc import Callable

import pytest

from tailrace.model.commit import Changes
from tailrace.model.errors import (
    InvalidPartitionsError,
    LimitExceededError,
    OffsetOutOfRangeError,
    SequencingError,
    TailraceError,
    UnknownPartitionError,
)
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.contract import Store
from tests.support.batches import append
from tests.support.observed import observe
from tests.support.stores import Home

HAVE, OTHER, MISSING = TopicId(1), TopicId(2), TopicId(9)
HAVE_0, OTHER_0 = PartitionId(HAVE, 0), PartitionId(OTHER, 0)
FINE = append(OTHER_0, b"would be fine alone")
ALSO_FINE = ((b"key", b"new"), (b"other", b"new"))

REFUSALS = {
    "append to a partition that is not there": (
        Changes(appends=[FINE, append(PartitionId(HAVE, 2), b"x")], puts=ALSO_FINE),
        UnknownPartitionError,
    ),
    "append to a topic that is not there": (
        Changes(appends=[FINE, append(PartitionId(MISSING, 0), b"x")], drop_prefixes=[b"k"]),
        UnknownPartitionError,
    ),
    "append to a topic that the same commit drops": (
        Changes(drops=[HAVE], appends=[FINE, append(HAVE_0, b"x")]),
        UnknownPartitionError,
    ),
    "append beyond the partitions that the same commit creates": (
        Changes(creates=[(MISSING, 2)], appends=[FINE, append(PartitionId(MISSING, 2), b"x")]),
        UnknownPartitionError,
    ),
    "append for an offset that is taken": (
        Changes(appends=[FINE, append(HAVE_0, b"x", base_offset=2)], puts=ALSO_FINE),
        SequencingError,
    ),
    "append for an offset that would leave a gap": (
        Changes(appends=[FINE, append(HAVE_0, b"x", base_offset=4)]),
        SequencingError,
    ),
    "second append of a commit for the offset of its first": (
        Changes(appends=[append(HAVE_0, b"x", base_offset=3), append(HAVE_0, b"y", base_offset=3)]),
        SequencingError,
    ),
    "trim beyond the end": (
        Changes(trims=[(OTHER_0, Offset(1)), (HAVE_0, Offset(4))], appends=[FINE]),
        OffsetOutOfRangeError,
    ),
    "trim to an offset below zero": (
        Changes(trims=[(HAVE_0, Offset(-1))], appends=[FINE]),
        OffsetOutOfRangeError,
    ),
    "trim of a partition that is not there": (
        Changes(trims=[(PartitionId(HAVE, 2), Offset(0))], appends=[FINE]),
        UnknownPartitionError,
    ),
    "trim of a topic that the same commit drops": (
        Changes(drops=[HAVE], trims=[(HAVE_0, Offset(1))]),
        UnknownPartitionError,
    ),
    "drop of a topic that is not there": (
        Changes(drops=[MISSING], appends=[FINE], puts=ALSO_FINE),
        UnknownPartitionError,
    ),
    "drop of the same topic twice": (
        Changes(drops=[HAVE, HAVE]),
        UnknownPartitionError,
    ),
    "topic with fewer partitions than before": (
        Changes(creates=[(MISSING, 3), (HAVE, 1)], appends=[FINE]),
        InvalidPartitionsError,
    ),
    "topic that shrinks within one commit": (
        Changes(creates=[(MISSING, 3), (MISSING, 2)]),
        InvalidPartitionsError,
    ),
    "topic without partitions": (
        Changes(creates=[(MISSING, 0)], appends=[FINE]),
        InvalidPartitionsError,
    ),
}


@pytest.mark.parametrize(("changes", "error"), REFUSALS.values(), ids=[name.replace(" ", "-") for name in REFUSALS])
def test_a_refused_commit_changes_nothing(
    store: Store, revisit: Callable[[], Store], changes: Changes, error: type[TailraceError]
) -> None:
    store.commit(Changes(creates=[(HAVE, 2), (OTHER, 1)], puts=[(b"key", b"old")]))
    store.commit(Changes(appends=[append(HAVE_0, b"a", b"b", b"c"), append(OTHER_0, b"d", b"e")]))
    before = observe(store)
    with pytest.raises(error) as refusal:
        store.commit(changes)
    assert refusal.value.outcome == "failed"
    assert store.latest(b"key") == b"old"
    assert observe(store) == before
    store = revisit()
    assert observe(store) == before
    receipt = store.commit(Changes(appends=[append(HAVE_0, b"next"), FINE], puts=ALSO_FINE))
    assert (receipt.cursor, list(receipt.offsets)) == (5, [3, 2])


def test_a_refused_submit_never_calls_done(store: Store) -> None:
    store.commit(Changes(creates=[(HAVE, 1)]))
    answers: list[object] = []
    with pytest.raises(UnknownPartitionError):
        store.submit(Changes(appends=[append(PartitionId(HAVE, 7), b"x")]), answers.append)
    store.commit(Changes())
    assert answers == []


def test_a_commit_over_the_frame_limit_is_refused_by_its_name(home: Home) -> None:
    store = home.open(limits=Limits(frame_bytes=32 * KIB))
    store.commit(Changes(creates=[(HAVE, 1)]))
    half = append(HAVE_0, b"x" * 20 * KIB)
    store.commit(Changes(appends=[half]))
    with pytest.raises(LimitExceededError, match="frame_bytes"):
        store.commit(Changes(appends=[half, half]))
    with pytest.raises(LimitExceededError, match="frame_bytes"):
        store.commit(Changes(puts=[(b"key", b"v" * 40 * KIB)]))
    assert store.bounds(HAVE_0) == (0, 1)
    assert store.get(b"key") is None
    store.close()


def test_an_error_names_the_bounds_that_a_trim_would_pass(store: Store) -> None:
    store.commit(Changes(creates=[(HAVE, 1)], appends=[append(HAVE_0, b"a", b"b")]))
    with pytest.raises(OffsetOutOfRangeError) as refusal:
        store.commit(Changes(trims=[(HAVE_0, Offset(3))]))
    assert refusal.value.end == 2
    assert "3" in str(refusal.value)
