"""Positions and pairs of offsets, as they are kept in the target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.shadow.admin import CommittedPosition
from tailrace.shadow.positions import Anchor, OffsetMap, StoredPosition, decode_position, encode_position

LONG = (1 << 63) - 1
ID = "A" * 22


def test_runs_without_a_gap_in_the_target_are_one_anchor() -> None:
    offsets = OffsetMap()
    offsets.add(10, 0, 5)
    offsets.add(15, 5, 5)
    offsets.add(20, 11, 5)  # a marker lies between
    offsets.add(30, 16, 0)  # gaps of compaction
    assert list(offsets) == [Anchor(10, 0, 10), Anchor(20, 11, 5), Anchor(30, 16, 0)]


@pytest.mark.parametrize(("origin", "anchor"), [(9, None), (10, 10), (19, 10), (20, 20), (10_000, 20)])
def test_the_last_anchor_before_an_offset_is_found(origin: int, anchor: int | None) -> None:
    offsets = OffsetMap([Anchor(10, 0, 10), Anchor(20, 11, 5)])
    found = offsets.before(origin)
    assert (None if found is None else found.origin) == anchor


@pytest.mark.parametrize(("target", "anchor"), [(0, 10), (10, 10), (11, 20), (500, 20)])
def test_the_last_anchor_before_an_offset_of_the_target_is_found(target: int, anchor: int) -> None:
    offsets = OffsetMap([Anchor(10, 0, 10), Anchor(20, 11, 5)])
    found = offsets.before_target(target)
    assert found is not None
    assert found.origin == anchor


def test_what_was_learnt_between_two_anchors_is_found() -> None:
    offsets = OffsetMap([Anchor(10, 0, 2), Anchor(100, 80, 5)])
    offsets.learn(50, 33)
    assert offsets.before(60) == Anchor(50, 33)


@given(st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 20)), min_size=1, max_size=3_000))
def test_pairs_are_few_and_reach_from_the_first_to_the_last(steps: list[tuple[int, int]]) -> None:
    offsets = OffsetMap(most=500)
    origin = target = 0
    for records, gap in steps:
        offsets.add(origin, target, records)
        origin, target = origin + records, target + records + gap
    anchors = list(offsets)
    pairs = list(offsets.pairs())
    assert len(anchors) <= 500
    assert len(pairs) <= 24
    assert pairs == sorted(pairs)
    assert set(pairs) <= set(anchors)
    assert (pairs[0], pairs[-1]) == (anchors[0], anchors[-1])
    assert pairs[0].origin == 0


def test_pairs_are_denser_where_the_copy_has_come_to() -> None:
    offsets = OffsetMap()
    for at in range(900):
        offsets.add(at * 10, at * 11, 10)
    distances = [9_000 - pair.origin for pair in offsets.pairs()]
    assert len(distances) > 10
    assert sum(distance <= 1_000 for distance in distances) >= len(distances) // 2


def test_a_position_comes_back() -> None:
    stored = StoredPosition(500, ID, "B" * 22, 480, 3, [Anchor(3, 0, 10), Anchor(20, 11, 0)])
    assert decode_position(encode_position(stored)) == stored


def test_the_largest_position_fits_into_what_kafka_allows() -> None:
    offsets = [Anchor(LONG - at, LONG - at, LONG) for at in range(24)]
    committed = encode_position(StoredPosition(LONG, ID, ID, LONG, LONG, offsets))
    assert len(committed.metadata) <= 4_096
    assert decode_position(committed) is not None


@pytest.mark.parametrize("metadata", ["", "somebody else's", "tailrace1;a;b;c;d;", "tailrace1;a;b;1;2;3", "tailrace2;a;b;1;2;"])
def test_what_others_have_committed_is_no_position(metadata: str) -> None:
    assert decode_position(CommittedPosition(5, metadata)) is None
