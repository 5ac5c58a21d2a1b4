"""Topics are decoded from the metadata of consumers, and garbage is not."""

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.groups.members import subscribed_topics
from tests.support.groups import subscription


@given(st.frozensets(st.text(max_size=20), max_size=5), st.binary(max_size=20))
def test_topics_are_read_whatever_comes_after_them(topics: frozenset[str], tail: bytes) -> None:
    encoded = [topic.encode() for topic in topics]
    names = b"".join(pack(">h", len(topic)) + topic for topic in encoded)
    assert subscribed_topics(pack(">hi", 3, len(encoded)) + names + tail) == topics


@given(st.binary(max_size=100))
def test_garbage_is_no_subscription_or_one_with_names(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_a_count_beyond_the_bytes_is_no_subscription() -> None:
    assert subscribed_topics(pack(">hi", 0, 2**31 - 1)) is None
    assert subscribed_topics(subscription("topic")[:8]) is None
