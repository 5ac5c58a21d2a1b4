"""The stored state of a share is small and complete."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.state import ShareState, decode_state
from tailrace.model.ids import Offset
from tailrace.model.queue import RecordState
from tailrace.model.record import Record

STATES = st.sampled_from(["available", "acquired", "acknowledged", "done", "archiving", "gap"])


@given(st.integers(0, 1_000), st.lists(st.tuples(STATES, st.integers(0, 3)), max_size=40))
def test_open_records_and_their_counts_survive(start: int, states: list[tuple[str, int]]) -> None:
    state = ShareState(Offset(start))
    expected = {}
    for at, (wanted, deliveries) in enumerate(states, start):
        offset = Offset(at)
        records = [] if wanted == "gap" else [Record(None, b"", offset=offset)]
        state.admit(records, Offset(at + 1))
        for token in range(deliveries if records else 0):
            state.release(state.acquire(offset, "", "", token, 0))
        record = state.get(offset)
        if record is None:
            continue
        if wanted == "done":
            state.drop([offset])
        elif wanted != "available":
            record.state = RecordState[wanted.upper()]
        if wanted in ("available", "acquired", "archiving"):
            expected[offset] = deliveries
    stored = decode_state(state.encode())
    assert {record.offset: record.deliveries for record in stored} == expected
    assert {record.state for record in stored} <= {RecordState.AVAILABLE}
    assert (stored.start, stored.end) == (next(iter(expected), start + len(states)), start + len(states))


def test_a_long_run_of_equal_records_is_a_few_bytes() -> None:
    state = ShareState(Offset(0))
    state.admit([Record(None, b"", offset=Offset(offset)) for offset in range(2_000)], Offset(2_000))
    assert len(state.encode()) < 12
