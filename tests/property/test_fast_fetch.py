"""The fast path for fetch responses writes the same bytes as the message codec."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.wire.fast_fetch import FetchedPartition, FetchedTopic, write_fetch_response
from tailrace.wire.message_codec import MessageCodec
from tailrace.wire.messages.fetch import (
    FETCH_API,
    FetchableTopicResponse,
    FetchAbortedTransaction,
    FetchPartitionData,
    FetchResponse,
)

CODEC = MessageCodec()
INT64 = st.integers(-1, 2**63 - 1)

partitions = st.builds(
    FetchedPartition,
    number=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 120),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    batches=st.lists(st.binary(min_size=1, max_size=9_000), max_size=4),
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
)
topics = st.builds(FetchedTopic, name=st.text(max_size=300), topic_id=st.uuids(), partitions=st.lists(partitions, max_size=3))


def described(topic: FetchedTopic) -> FetchableTopicResponse:
    return FetchableTopicResponse(
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            FetchPartitionData(
                partition_index=each.number,
                error_code=each.error_code,
                high_watermark=each.high_watermark,
                last_stable_offset=each.last_stable_offset,
                log_start_offset=each.log_start_offset,
                aborted_transactions=None
                if each.aborted is None
                else tuple(FetchAbortedTransaction(producer_id=id_, first_offset=first) for id_, first in each.aborted),
                records=b"".join(each.batches),
            )
            for each in topic.partitions
        ),
    )


@settings(max_examples=150, deadline=None)
@given(
    st.integers(FETCH_API.lowest, FETCH_API.highest),
    st.lists(topics, max_size=3),
    st.integers(0, 120),
    st.integers(0, 2**31 - 1),
)
def test_by_hand_and_by_description_are_the_same_bytes(
    version: int, fetched: list[FetchedTopic], error_code: int, session_id: int
) -> None:
    expected = bytearray()
    message = FetchResponse(error_code=error_code, session_id=session_id, responses=tuple(map(described, fetched)))
    CODEC.write(message, version, FETCH_API.is_flexible(version), expected)
    parts = write_fetch_response(version, fetched, error_code, session_id)
    assert b"".join(parts) == expected
