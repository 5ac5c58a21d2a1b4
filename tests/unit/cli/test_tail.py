"""Server-Sent Events, in whatever chunks they arrive."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.tail import ServerSentEvent, parse_events

STREAM = (
    b": still here\nid: 6\n\n"
    b'id: 7\ndata: {"a":1}\n\n'
    b'id: 8\ndata: {"a":\ndata: 2}\n\n'
    b": still here\n\n"
    b'event: error\ndata: {"detail":"slow"}\n\n'
    b'id: 9\ndata: {"never": "complete"}\n'
)
EVENTS = [
    ServerSentEvent(b"", 6, b""),
    ServerSentEvent(b"", 7, b'{"a":1}'),
    ServerSentEvent(b"", 8, b'{"a":\n2}'),
    ServerSentEvent(b"", None, b""),
    ServerSentEvent(b"error", None, b'{"detail":"slow"}'),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_in_any_chunks(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[begin:end] for begin, end in pairwise(places)]
    assert list(parse_events(chunks)) == EVENTS


def test_an_incomplete_event_is_dropped() -> None:
    assert list(parse_events([b'id: 1\ndata: {"half'])) == []
