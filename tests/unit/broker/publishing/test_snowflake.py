import pytest

from tailrace.broker.publishing.snowflake import EPOCH_MS, MAX_NODE, Snowflakes
from tailrace.model.errors import InvariantError
from tests.support.clocks import ManualClock

NOW = EPOCH_MS + 1_000_000


def test_an_id_holds_time_node_and_sequence() -> None:
    snowflakes = Snowflakes(ManualClock(NOW), node=5)
    first, second = snowflakes.next(), snowflakes.next()
    assert (first >> 22) + EPOCH_MS == NOW
    assert first >> 12 & MAX_NODE == 5
    assert (first & 0xFFF, second & 0xFFF) == (0, 1)


def test_ids_rise_when_the_clock_stands_still() -> None:
    snowflakes = Snowflakes(ManualClock(NOW), node=5)
    ids = [snowflakes.next() for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert {snowflake >> 12 & MAX_NODE for snowflake in ids} == {5}


def test_ids_rise_when_the_clock_steps_back() -> None:
    clock = ManualClock(NOW)
    snowflakes = Snowflakes(clock)
    before = [snowflakes.next() for _ in range(3)]
    clock.step_back(60_000)
    after = [snowflakes.next() for _ in range(5_000)]
    assert before[-1] < after[0]
    assert after == sorted(set(after))


def test_the_sequence_starts_anew_with_each_millisecond() -> None:
    clock = ManualClock(NOW)
    snowflakes = Snowflakes(clock)
    snowflakes.next()
    snowflakes.next()
    clock.advance(1)
    assert snowflakes.next() & 0xFFF == 0


def test_ids_rise_over_a_restart_with_a_clock_that_stepped_back() -> None:
    clock = ManualClock(NOW)
    first = Snowflakes(clock)
    before = [first.next() for _ in range(3)]
    mark = first.due_mark()
    assert mark is not None
    clock.step_back(3_600_000)
    second = Snowflakes(clock)
    second.start_after(mark)
    assert second.next() > before[-1]


def test_the_mark_is_due_again_only_when_ids_pass_it() -> None:
    clock = ManualClock(NOW)
    snowflakes = Snowflakes(clock)
    snowflakes.next()
    mark = snowflakes.due_mark()
    assert mark is not None
    snowflakes.marked(mark)
    assert snowflakes.due_mark() is None
    clock.advance(mark - (NOW - EPOCH_MS) + 1)
    snowflakes.next()
    assert snowflakes.due_mark() is not None


def test_a_mark_that_did_not_become_durable_stays_due() -> None:
    snowflakes = Snowflakes(ManualClock(NOW))
    snowflakes.next()
    assert snowflakes.due_mark() == snowflakes.due_mark() is not None


@pytest.mark.parametrize("node", [-1, MAX_NODE + 1])
def test_a_node_has_ten_bits(node: int) -> None:
    with pytest.raises(InvariantError, match=f"node {node}"):
        Snowflakes(ManualClock(), node)
