"""Partitions are shared out as Kafka's range assignor does it."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.assignor import assign_ranges


def test_the_first_members_by_id_get_the_odd_ones() -> None:
    shares = assign_ranges({"b": ["t"], "a": ["t"]}, {"t": 3})
    assert shares == {"a": {"t": [0, 1]}, "b": {"t": [2]}}


def test_each_topic_is_shared_among_those_who_want_it() -> None:
    shares = assign_ranges({"a": ["t", "u"], "b": ["u"]}, {"t": 2, "u": 2})
    assert shares == {"a": {"t": [0, 1], "u": [0]}, "b": {"u": [1]}}


def test_who_gets_nothing_is_there_with_nothing() -> None:
    assert assign_ranges({"a": ["t"], "b": ["t"]}, {"t": 1}) == {"a": {"t": [0]}, "b": {}}


@given(st.integers(1, 9), st.integers(0, 30))
def test_every_partition_has_one_owner_and_shares_differ_by_one_at_most(members: int, partitions: int) -> None:
    shares = assign_ranges({f"m{number}": ["t"] for number in range(members)}, {"t": partitions})
    sizes = [len(share.get("t", [])) for share in shares.values()]
    assert sorted(number for share in shares.values() for number in share.get("t", [])) == list(range(partitions))
    assert max(sizes) - min(sizes) <= 1
