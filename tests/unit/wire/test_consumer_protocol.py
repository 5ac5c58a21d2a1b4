"""Subscriptions and assignments are encoded in Kafka's own format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.groups.members import subscribed_topics
from tailrace.model.errors import MalformedMessageError
from tailrace.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = st.text(st.characters(codec="ascii", categories=("L", "Nd")), min_size=1, max_size=20)


def test_the_bytes_are_those_that_kafkas_clients_write() -> None:
    subscription = bytes.fromhex("0000 00000001 0002 6162 ffffffff")
    assignment = bytes.fromhex("0000 00000001 0002 6162 00000002 00000000 00000005 ffffffff")
    assert encode_subscription(["ab"]) == subscription
    assert encode_assignment({"ab": [0, 5]}) == assignment


@given(st.lists(TOPICS, unique=True))
def test_a_subscription_is_read_as_it_was_written_by_us_and_by_the_broker(topics: list[str]) -> None:
    data = encode_subscription(topics)
    assert decode_subscription(data) == topics
    assert subscribed_topics(data) == frozenset(topics)


@given(st.dictionaries(TOPICS, st.lists(st.integers(0, 2**31 - 1))))
def test_an_assignment_is_read_as_it_was_written(assigned: dict[str, list[int]]) -> None:
    assert decode_assignment(encode_assignment(assigned)) == assigned


def test_no_assignment_at_all_means_no_partitions() -> None:
    assert decode_assignment(b"") == {}


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read_but_nothing_else_happens(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedMessageError:
            continue


def test_a_count_beyond_the_bytes_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="2147483647"):
        decode_assignment(bytes.fromhex("0000 00000001 0001 61 7fffffff"))
